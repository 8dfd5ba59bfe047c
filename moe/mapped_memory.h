// MappedMemory: page-aligned memory of the process's own that takes room only where it is touched.
#ifndef TIDEPOOL_MOE_MAPPED_MEMORY_H_
#define TIDEPOOL_MOE_MAPPED_MEMORY_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidepool::moe {

// Move-only owner of an anonymous mapping. Thread-compatible; its bytes belong to whoever is given
// them.
class MappedMemory {
 public:
  // Zeros. RESOURCE_EXHAUSTED where the machine does not promise so much.
  static absl::StatusOr<MappedMemory> Create(int64_t bytes);
  // Address space alone, which counts as no memory even where the machine promises none that it
  // does not have (vm.overcommit_memory=2): nothing may be touched that was not committed.
  static absl::StatusOr<MappedMemory> Reserve(int64_t bytes);

  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  ~MappedMemory();

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }

  // Makes [at, at + bytes) usable; zeros where it was not so. RESOURCE_EXHAUSTED as Create.
  absl::Status Commit(std::byte* at, int64_t bytes);
  // Gives the pages wholly inside [at, at + bytes) back to the machine; they are not to be touched
  // until they are committed again.
  void Release(std::byte* at, int64_t bytes);

 private:
  MappedMemory(std::byte* data, int64_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_MAPPED_MEMORY_H_
