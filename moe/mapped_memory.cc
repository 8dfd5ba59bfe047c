#include "moe/mapped_memory.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace tidepool::moe {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;

}  // namespace

absl::StatusOr<MappedMemory> MappedMemory::Create(int64_t bytes) {
  CHECK(bytes > 0);
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no address space for ", bytes, " bytes of memory"));
  }
  // Fewer pages to pin for each unbuffered read. Small mappings would only waste the rest of one.
  if (bytes >= 16 * kHugePage) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return MappedMemory(static_cast<std::byte*>(data), bytes);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, static_cast<size_t>(size_));
}

void MappedMemory::Release(std::byte* at, int64_t bytes) {
  CHECK(at >= data_ && at + bytes <= data_ + size_);
  const int64_t begin = (at - data_ + kPage - 1) / kPage * kPage;
  const int64_t end = (at - data_ + bytes) / kPage * kPage;
  if (end > begin) madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
}

}  // namespace tidepool::moe
