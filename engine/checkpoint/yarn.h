// The range of dimensions that YaRN interpolates in part (Peng et al. 2023, arXiv:2309.00071).
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_YARN_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_YARN_H_

#include <cmath>
#include <cstdint>

namespace tidepool::engine {

// The rotary embedding before scaling. A pair of dimensions with a higher index rotates slower.
struct YarnRotation {
  double base = 0;
  int64_t dims = 0;              // number of rotated elements of each head
  int64_t original_context = 0;  // context length before scaling
  bool truncate = true;          // bounds are rounded to whole indices

  // Pairs up to this index do not change. It can be negative.
  double LowerBound(double beta_fast) const {
    return truncate ? std::floor(PairWith(beta_fast)) : PairWith(beta_fast);
  }
  // Pairs from this index on are interpolated in full. It can be negative, or above the last index.
  double UpperBound(double beta_slow) const {
    return truncate ? std::ceil(PairWith(beta_slow)) : PairWith(beta_slow);
  }

 private:
  // Returns the index at which a pair would make this number of turns in the original context.
  double PairWith(double turns) const {
    return static_cast<double>(dims) *
           std::log(static_cast<double>(original_context) / (2 * M_PI * turns)) /
           (2 * std::log(base));
  }
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_YARN_H_
