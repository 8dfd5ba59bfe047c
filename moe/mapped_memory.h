// MappedMemory: private, page-aligned memory. The kernel allocates each page when it is first
// touched.
#ifndef TIDEPOOL_MOE_MAPPED_MEMORY_H_
#define TIDEPOOL_MOE_MAPPED_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidepool::moe {

// Rounds up to a multiple of the page size.
int64_t WholePages(int64_t bytes);

// Owns an anonymous mapping. Move-only. Thread-compatible. Threads that use its bytes must
// synchronise with each other.
class MappedMemory {
 public:
  // Creates zeroed memory. Returns RESOURCE_EXHAUSTED if the system cannot commit it.
  static absl::StatusOr<MappedMemory> Create(int64_t bytes);
  // Reserves address space only. It does not count as committed memory, even with
  // vm.overcommit_memory=2. No byte may be touched before Commit.
  static absl::StatusOr<MappedMemory> Reserve(int64_t bytes);

  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

  // Makes [at, at + bytes) usable. Newly committed bytes are zero. Returns RESOURCE_EXHAUSTED if
  // the system cannot commit them.
  absl::Status Commit(std::byte* at, int64_t bytes);
  // Frees the pages that are completely inside [at, at + bytes). They must not be touched before
  // the next Commit.
  void Release(std::byte* at, int64_t bytes);

 private:
  MappedMemory(std::byte* data, int64_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_MAPPED_MEMORY_H_
