// The minimum of values that several threads compute.
#ifndef TIDEPOOL_KERNELS_BASE_ATOMIC_MIN_H_
#define TIDEPOOL_KERNELS_BASE_ATOMIC_MIN_H_

#include <atomic>
#include <cstdint>

namespace tidepool::base {

// target = min(target, value). Thread-safe. Does not order other memory accesses.
inline void LowerTo(std::atomic<int64_t>* target, int64_t value) {
  int64_t seen = target->load(std::memory_order_relaxed);
  while (value < seen && !target->compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_ATOMIC_MIN_H_
