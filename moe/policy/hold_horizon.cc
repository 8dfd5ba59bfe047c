#include "moe/policy/hold_horizon.h"

#include "moe/policy/vec4.h"

namespace tidepool::moe {

void HoldHorizon::Start(int count, float price) {
  count_ = count;
  price_ = price;
  is_first_ = true;
  const int size = (count + kLanes - 1) / kLanes * kLanes;
  unused_.assign(size, 1.0f);
  waited_.assign(size, 0.0f);
  best_.assign(size, -1.0f);  // less than any gain that the next forward can have
  chance_.assign(size, 0.0f);
  forwards_.assign(size, 0.0f);
}

bool HoldHorizon::Add(const std::vector<float>& hazards) {
  bool may_pay = false;
  for (int i = 0; i < count_; i += kLanes) {
    Vec4 unused = Load4(&unused_[i]);
    Vec4 waited = Load4(&waited_[i]);
    Vec4 best = Load4(&best_[i]);
    if (!is_first_) waited += unused;
    unused *= 1.0f - Load4(&hazards[i]);
    const Vec4 gain = 1.0f - unused - price_ * waited;
    const Int4 is_better = gain > best;
    best = is_better ? gain : best;
    Store4(unused, &unused_[i]);
    Store4(waited, &waited_[i]);
    Store4(best, &best_[i]);
    Store4(is_better ? 1.0f - unused : Load4(&chance_[i]), &chance_[i]);
    Store4(is_better ? waited : Load4(&forwards_[i]), &forwards_[i]);
    // The gain if the next forward uses the expert with certainty.
    may_pay |= AnyOf4(1.0f - price_ * (waited + unused) > best);
  }
  is_first_ = false;
  return may_pay;
}

}  // namespace tidepool::moe
