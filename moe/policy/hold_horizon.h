// HoldHorizon: from the chances of a use at each coming forward to when a slot is best given up.
#ifndef TIDEPOOL_MOE_POLICY_HOLD_HORIZON_H_
#define TIDEPOOL_MOE_POLICY_HOLD_HORIZON_H_

#include <vector>

#include "moe/policy/chance_curves.h"

namespace tidepool::moe {

// Thread-compatible. Finds the number of forwards for which holding a slot for an expert gains
// most: the chance of a use, which is worth 1, less the price of the slot for the mean time until
// then.
class HoldHorizon {
 public:
  // stride: that of the curves.
  explicit HoldHorizon(int stride) : chance_(stride), forwards_(stride) {}

  // Of the first `count` experts; whole vectors of them are read and written. price: of a slot, in
  // uses per forward.
  void Go(const ChanceCurves& curves, int count, float price);

  // [stride]: of a use before the slot is given up, which takes so many forwards after the next, on
  // average.
  const std::vector<float>& chance() const { return chance_; }
  const std::vector<float>& forwards() const { return forwards_; }

 private:
  std::vector<float> chance_;
  std::vector<float> forwards_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_HOLD_HORIZON_H_
