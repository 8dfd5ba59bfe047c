#include "moe/policy/chance_curves.h"

#include <algorithm>

namespace tidepool::moe {

void ChanceCurves::Advance() {
  next_ = (next_ + 1) % kForwards;
  std::copy_n(At(kForwards - 2), stride_, rows_.begin() + Offset(kForwards - 1));
}

void ChanceCurves::Set(int begin, int end, absl::Span<const int32_t> experts,
                       absl::Span<const float> chances) {
  for (int forward = begin; forward < end; ++forward) {
    float* row = rows_.data() + Offset(forward);
    for (size_t i = 0; i < experts.size(); ++i) row[experts[i]] = chances[i];
  }
}

}  // namespace tidepool::moe
