// ChanceCurves: for each expert of a layer, the chance of a use at each of the coming forwards, if
// none has come before.
#ifndef TIDEPOOL_MOE_POLICY_CHANCE_CURVES_H_
#define TIDEPOOL_MOE_POLICY_CHANCE_CURVES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace tidepool::moe {

// Thread-compatible. While an expert is not used, what was said of a forward goes on to hold of it
// as it comes nearer: nothing has to be said anew but what should be more exact.
class ChanceCurves {
 public:
  static constexpr int kForwards = 64;

  // stride: experts rounded up, see ExpertStride.
  explicit ChanceCurves(int stride) : stride_(stride), rows_(kForwards * stride) {}

  // One forward has passed. Of the last one no more is known than of the one before it.
  void Advance();

  // Forwards `begin` to `end`, which is not one of them, use experts[i] with chance chances[i]; the
  // next forward is 0. Requires: 0 <= begin < end <= kForwards, a chance for each of the experts.
  void Set(int begin, int end, absl::Span<const int32_t> experts, absl::Span<const float> chances);

  // [stride]: chance of each expert at this forward.
  const float* At(int forward) const { return rows_.data() + Offset(forward); }

 private:
  int Offset(int forward) const { return (next_ + forward) % kForwards * stride_; }

  int stride_;
  int next_ = 0;  // row of the next forward
  std::vector<float> rows_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_CHANCE_CURVES_H_
