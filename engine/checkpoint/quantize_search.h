// Searches for the scales of quantize.cc and quantize_k.cc. Implementation detail of Quantize.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_SEARCH_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_SEARCH_H_

#include <cstdint>

#include "kernels/math.h"

namespace tidepool::engine::quantize {

// Processes four elements at a time, in the same order on every machine.
using Lanes = float __attribute__((vector_size(16)));
inline constexpr int kLanes = 4;

inline Lanes Load(const float* x) {
  Lanes lanes;
  __builtin_memcpy(&lanes, x, sizeof(lanes));
  return lanes;
}
inline Lanes All(float value) { return Lanes{value, value, value, value}; }
inline float Sum(Lanes l) { return (l[0] + l[2]) + (l[1] + l[3]); }
// Rounds to the nearest even integer. Requires: |x| < 2^22.
inline Lanes Round(Lanes x) { return (x + kernels::kRoundingShift) - kernels::kRoundingShift; }
inline Lanes Clamp(Lanes x, float low, float high) {
  x = x < low ? All(low) : x;
  return x > high ? All(high) : x;
}

// Codes of a type whose elements are scale * code: low <= code <= high.
struct CodeRange {
  float low;
  float high;
};

// x is about step * code + minimum.
struct AffineFit {
  float step = 0;
  float minimum = 0;
};

enum class Minimum : uint8_t { kAny, kNotPositive };

// Returns the scale of the best fit of x[0..count) by scale * code. It may be negative, and is 0 if
// all x are 0. Requires: count is a multiple of kLanes.
float FitScale(const float* x, int count, CodeRange range);

// Returns the best fit for codes 0 to `high`. Its step is at least 0.
AffineFit FitAffine(const float* x, int count, float high, Minimum minimum);

// Sets codes[i] to the code nearest to (x[i] - fit.minimum) / fit.step, and returns the total
// squared error. With a step of 0, the codes are nearest to 0.
float RoundCodes(const float* x, int count, AffineFit fit, CodeRange range, int8_t* codes);

// Returns the same error without writing codes.
float ErrorOf(const float* x, int count, AffineFit fit, CodeRange range);

}  // namespace tidepool::engine::quantize

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_SEARCH_H_
