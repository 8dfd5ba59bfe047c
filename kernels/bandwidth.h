// ReadBandwidth: measures the memory bandwidth. Other speeds are compared to it.
#ifndef TIDEPOOL_KERNELS_BANDWIDTH_H_
#define TIDEPOOL_KERNELS_BANDWIDTH_H_

#include <cstddef>

#include "kernels/base/clock.h"

namespace tidepool::kernels {

// Much larger than the last-level cache of any CPU.
inline constexpr size_t kBandwidthProbeBytes = size_t{1} << 30;

// Returns how many bytes per second `threads` threads together can read when they sum up `bytes` of
// memory. It is the best of 5 passes over an array. The array was written before, so page faults
// are not measured. Each thread has 8 independent sums, so the latency of additions is not measured
// either. The function allocates `bytes` of memory while it runs, in huge pages if available, as
// for weights. Requires: threads >= 1, and at least 64 bytes per thread.
double ReadBandwidth(int threads, size_t bytes, const base::Clock& clock);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_BANDWIDTH_H_
