// ReadBandwidth: measures the memory bandwidth, to which other speeds are compared.
#ifndef TIDEPOOL_KERNELS_BANDWIDTH_H_
#define TIDEPOOL_KERNELS_BANDWIDTH_H_

#include <cstddef>

#include "kernels/base/clock.h"

namespace tidepool::kernels {

// Much larger than any last-level cache.
inline constexpr size_t kBandwidthProbeBytes = size_t{1} << 30;

// Returns the bytes per second at which `threads` threads together sum up `bytes` of memory: the
// best of 5 passes over an array that was written first. Each thread has its own share and 8
// independent sums, so that neither page faults nor a chain of additions is measured. Allocates
// `bytes` of memory while it runs, in huge pages if available, like weights. Requires: threads >=
// 1, and at least 64 bytes per thread.
double ReadBandwidth(int threads, size_t bytes, const base::Clock& clock);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_BANDWIDTH_H_
