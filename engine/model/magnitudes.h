// ScanMagnitudes: a fast check of many floats for zeros and for values that are too large.
#ifndef TIDEPOOL_ENGINE_MODEL_MAGNITUDES_H_
#define TIDEPOOL_ENGINE_MODEL_MAGNITUDES_H_

#include <bit>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace tidepool::engine {

// The bits of a float without its sign. As integers, magnitudes have the same order as floats, and
// NaN is larger than infinity.
inline int32_t MagnitudeBits(float value) { return std::bit_cast<int32_t>(value) & 0x7fffffff; }

struct Magnitudes {
  bool all_zero = true;
  bool all_below = true;  // no magnitude reaches the limit
};

// Checks all values. `limit` is the MagnitudeBits of the smallest value that is too large.
inline Magnitudes ScanMagnitudes(absl::Span<const float> values, int32_t limit) {
  // Each lane collects the bits of its magnitudes, and the sign bits of (limit - 1 - magnitude).
  // Without branches and with a constant number of lanes, compilers use vector instructions.
  constexpr size_t kLanes = 4;
  int32_t any[kLanes] = {};
  int32_t over[kLanes] = {};
  const float* value = values.data();
  size_t left = values.size();
  for (; left >= kLanes; left -= kLanes, value += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const int32_t magnitude = MagnitudeBits(value[lane]);
      any[lane] |= magnitude;
      over[lane] |= limit - 1 - magnitude;
    }
  }
  for (size_t lane = 0; lane < left; ++lane) {
    const int32_t magnitude = MagnitudeBits(value[lane]);
    any[lane] |= magnitude;
    over[lane] |= limit - 1 - magnitude;
  }
  int32_t all_any = 0;
  int32_t all_over = 0;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    all_any |= any[lane];
    all_over |= over[lane];
  }
  return {.all_zero = all_any == 0, .all_below = all_over >= 0};
}

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_MAGNITUDES_H_
