#include "kernels/cpu/row_scan.h"

#include <bit>
#include <cstddef>
#include <cstdint>

namespace tidepool::kernels {
namespace {

// The bits of a float without its sign. As integers, magnitudes have the same order as floats, and
// NaN is larger than infinity.
int32_t MagnitudeBits(float value) { return std::bit_cast<int32_t>(value) & 0x7fffffff; }

struct Magnitudes {
  bool all_zero = true;
  bool all_below = true;  // no magnitude reaches the limit
};

// `limit` is the MagnitudeBits of the smallest value that is too large.
Magnitudes Scan(absl::Span<const float> values, int32_t limit) {
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

}  // namespace

RowScan ScanRow(absl::Span<const float> row, float limit) {
  const int32_t limit_bits = MagnitudeBits(limit);
  const Magnitudes found = Scan(row, limit_bits);
  RowScan result;
  result.all_zero = found.all_zero;
  if (found.all_below) return result;
  while (MagnitudeBits(row[++result.first_large]) < limit_bits) {
  }
  result.large = row[result.first_large];
  return result;
}

}  // namespace tidepool::kernels
