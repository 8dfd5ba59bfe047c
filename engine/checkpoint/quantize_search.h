// The search for scales, which quantize.cc and quantize_k.cc use. Implementation detail of
// Quantize.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_SEARCH_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_SEARCH_H_

#include <cstdint>

#include "kernels/math.h"

namespace tidepool::engine::quantize {

// Four elements that are processed together. Their order is the same on every machine.
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

// The codes of a type: low <= code <= high.
struct CodeRange {
  float low;
  float high;
};

// An element is approximated by step * code + minimum.
struct AffineFit {
  float step = 0;
  float minimum = 0;
};

enum class Minimum : uint8_t { kAny, kNotPositive };

// Returns the scale for which scale * code fits x[0..count) best. The scale may be negative. It is
// 0 if all x are 0. Requires: count is a multiple of kLanes.
float FitScale(const float* x, int count, CodeRange range);

// Returns the best fit of x[0..count) with codes from 0 to `high`. The step is at least 0.
AffineFit FitAffine(const float* x, int count, float high, Minimum minimum);

// Sets codes[i] to the code nearest to (x[i] - fit.minimum) / fit.step, and returns the total
// squared error. If the step is 0, each code is the one nearest to 0.
float RoundCodes(const float* x, int count, AffineFit fit, CodeRange range, int8_t* codes);

// Returns the same error as RoundCodes, without writing codes.
float ErrorOf(const float* x, int count, AffineFit fit, CodeRange range);

}  // namespace tidepool::engine::quantize

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_QUANTIZE_SEARCH_H_
