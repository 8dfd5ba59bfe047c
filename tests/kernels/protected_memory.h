// ProtectedMemory: memory that host code cannot touch while it is closed. If a test passes with it,
// host code would not touch the memory of a device either.
#ifndef TIDEPOOL_TESTS_KERNELS_PROTECTED_MEMORY_H_
#define TIDEPOOL_TESTS_KERNELS_PROTECTED_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/base/mutex.h"
#include "kernels/memory.h"

namespace tidepool::kernels {

// The pages have no access rights while the memory is closed, so that an access ends the process. A
// page without access rights follows each allocation. New memory of up to 64 MiB is filled with
// NaNs. Ends the process if it is destroyed before all its memory is freed. Thread-safe.
class ProtectedMemory final : public Memory {
 public:
  // `bytes` is the limit of all allocations together.
  explicit ProtectedMemory(size_t bytes = SIZE_MAX) : left_(bytes) {}
  ~ProtectedMemory() override;

  std::byte* Allocate(size_t bytes) override;
  // The memory stays mapped until Release, because ops that are not complete may use it.
  void Free(std::byte* data) override;
  bool on_host() const override { return false; }
  std::optional<size_t> available() const override {
    base::MutexLock lock(&mutex_);
    return left_;
  }

  // Returns whether all these bytes belong to one allocation that is not freed.
  bool Owns(const void* data, size_t bytes) const;

  // Unmaps freed memory.
  void Release();

  // Calls `body` while all memory is open. Until it returns, calls that allocate or free wait.
  void WhileOpen(absl::FunctionRef<void()> body);

 private:
  struct Pages {
    std::byte* begin = nullptr;
    size_t bytes = 0;  // of the pages, without the last one, which is never opened
    size_t size = 0;   // bytes of the allocation, which ends with the pages
  };

  void Protect(int rights) TIDEPOOL_REQUIRES(mutex_);
  static void Unmap(const Pages& pages);

  mutable base::Mutex mutex_;
  // by the address that Allocate returned
  std::map<const std::byte*, Pages> allocated_ TIDEPOOL_GUARDED_BY(mutex_);
  std::vector<Pages> freed_ TIDEPOOL_GUARDED_BY(mutex_);
  size_t left_ TIDEPOOL_GUARDED_BY(mutex_);  // bytes that can still be allocated
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_PROTECTED_MEMORY_H_
