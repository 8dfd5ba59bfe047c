// HoldHorizon: decides for how many forward passes to hold a slot for an expert. Its input is the
// expert's hazard (chance of a use) at each coming forward.
#ifndef TIDEPOOL_MOE_POLICY_HOLD_HORIZON_H_
#define TIDEPOOL_MOE_POLICY_HOLD_HORIZON_H_

#include <vector>

namespace tidepool::moe {

// Thread-compatible. For each of several experts, it finds the number of forwards that maximises
//   P(a use within them) - price * E(forwards until that use, or until the slot is given up).
// The first forward costs nothing, because every expert is held for it. Arrays are read and written
// in vectors of four floats.
//
//   hold.Start(count, price);
//   while (hold.Add(hazards of the next forward)) ...
class HoldHorizon {
 public:
  // `price` is the price of a slot for one forward. The unit is one use.
  void Start(int count, float price);

  // hazards [count]: the chance of a use at the next forward, if there was no use before. Returns
  // whether the gain of any expert can still increase if more forwards are added.
  bool Add(const std::vector<float>& hazards);

  // Both results are [count]. chance(): the chance of a use while the slot is held. forwards(): the
  // expected number of forward passes, after the next one, until this use or until the slot is
  // given up.
  const std::vector<float>& chance() const { return chance_; }
  const std::vector<float>& forwards() const { return forwards_; }

 private:
  int count_ = 0;
  float price_ = 0;
  bool is_first_ = true;
  std::vector<float> unused_;  // chance that there was no use so far
  std::vector<float> waited_;  // expected number of forwards so far
  std::vector<float> best_;    // largest gain so far; chance_ and forwards_ belong to it
  std::vector<float> chance_;
  std::vector<float> forwards_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_HOLD_HORIZON_H_
