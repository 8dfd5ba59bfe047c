// Memory: where the operands of a backend's ops are. Each backend has one (KernelBackend::memory).
#ifndef TIDEPOOL_KERNELS_MEMORY_H_
#define TIDEPOOL_KERNELS_MEMORY_H_

#include <cstddef>
#include <optional>

namespace tidepool::kernels {

// Every address that Allocate returns is a multiple of this.
inline constexpr size_t kAlignment = 64;

// Thread-safe.
class Memory {
 public:
  virtual ~Memory() = default;

  // Returns `bytes` bytes (above 0), not initialised, or null if there is no room for them.
  virtual std::byte* Allocate(size_t bytes) = 0;
  // Frees what Allocate returned. Ops that were called before and are not complete may still use
  // it.
  virtual void Free(std::byte* data) = 0;

  // Whether host code may read and write this memory. If not, only ops and copies of the backend
  // may.
  virtual bool on_host() const = 0;

  // The number of bytes that are free, or nullopt if it is unknown. Allocate may be unable to use
  // some of these bytes.
  virtual std::optional<size_t> available() const { return std::nullopt; }
};

// The memory of the host.
Memory* HostMemory();

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_MEMORY_H_
