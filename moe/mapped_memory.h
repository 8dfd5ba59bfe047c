// MappedMemory: page-aligned memory of the process's own that takes room only where it is touched.
#ifndef TIDEPOOL_MOE_MAPPED_MEMORY_H_
#define TIDEPOOL_MOE_MAPPED_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace tidepool::moe {

// Move-only owner of an anonymous mapping. Thread-compatible; its bytes belong to whoever is given
// them.
class MappedMemory {
 public:
  // Zeros. RESOURCE_EXHAUSTED where not even the address space is to be had.
  static absl::StatusOr<MappedMemory> Create(int64_t bytes);

  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

  // Gives the pages wholly inside [at, at + bytes) back to the machine; they read as zeros after.
  void Release(std::byte* at, int64_t bytes);

 private:
  MappedMemory(std::byte* data, int64_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_MAPPED_MEMORY_H_
