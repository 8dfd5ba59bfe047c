// ReadBandwidth: what memory can deliver, the bound that speeds are measured against.
#ifndef TIDEPOOL_KERNELS_BANDWIDTH_H_
#define TIDEPOOL_KERNELS_BANDWIDTH_H_

#include <cstddef>

#include "kernels/base/clock.h"

namespace tidepool::kernels {

// Far beyond any last-level cache.
inline constexpr size_t kBandwidthProbeBytes = size_t{1} << 30;

// Bytes per second at which `threads` threads together sum up `bytes` of memory: the best of 5
// passes over an array that was written first, each thread with a share and 8 independent sums, so
// that neither page faults nor a chain of additions is measured. Takes that much memory while it
// runs, over huge pages where the system gives them, as weights do. Requires: threads >= 1, bytes
// at least 64 per thread.
double ReadBandwidth(int threads, size_t bytes, const base::Clock& clock);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_BANDWIDTH_H_
