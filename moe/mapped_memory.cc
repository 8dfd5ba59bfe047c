#include "moe/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::moe {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

int64_t PageBytes() { return sysconf(_SC_PAGESIZE); }

absl::StatusOr<std::byte*> Map(int64_t bytes, int protection) {
  CHECK(bytes > 0);
  void* data = mmap(nullptr, static_cast<size_t>(bytes), protection, kPrivate, -1, 0);
  if (data != MAP_FAILED) return static_cast<std::byte*>(data);
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot reserve address space for ", bytes, " bytes"));
}

// With huge pages, the kernel pins fewer pages for each unbuffered read. In a small mapping, most
// of a huge page would be wasted.
void PreferHugePages(std::byte* data, int64_t bytes, int64_t of_bytes) {
  if (of_bytes >= 16 * kHugePage) madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);
}

}  // namespace

int64_t WholePages(int64_t bytes) {
  const int64_t page = PageBytes();
  return (bytes + page - 1) / page * page;
}

absl::StatusOr<MappedMemory> MappedMemory::Create(int64_t bytes) {
  ASSIGN_OR_RETURN(std::byte* const data, Map(bytes, PROT_READ | PROT_WRITE));
  PreferHugePages(data, bytes, bytes);
  return MappedMemory(data, bytes);
}

absl::StatusOr<MappedMemory> MappedMemory::Reserve(int64_t bytes) {
  ASSIGN_OR_RETURN(std::byte* const data, Map(bytes, PROT_NONE));
  return MappedMemory(data, bytes);
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

absl::Status MappedMemory::Commit(std::byte* at, int64_t bytes) {
  CHECK(at >= data_ && at + bytes <= data_ + size_);
  const int64_t page = PageBytes();
  const int64_t begin = (at - data_) / page * page;
  const int64_t end = std::min(WholePages(at - data_ + bytes), size_);
  if (mprotect(data_ + begin, static_cast<size_t>(end - begin), PROT_READ | PROT_WRITE) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the machine cannot commit ", bytes, " more bytes of memory"));
  }
  PreferHugePages(data_ + begin, end - begin, size_);
  return absl::OkStatus();
}

void MappedMemory::Release(std::byte* at, int64_t bytes) {
  CHECK(at >= data_ && at + bytes <= data_ + size_);
  const int64_t page = PageBytes();
  const int64_t begin = (at - data_ + page - 1) / page * page;
  const int64_t end = (at - data_ + bytes) / page * page;
  if (end <= begin) return;
  // mprotect alone would not reduce the committed memory of the process, so map the pages again. If
  // the process has too many mappings, this fails. The pages then still count as committed memory,
  // but are not allocated.
  const auto length = static_cast<size_t>(end - begin);
  if (mmap(data_ + begin, length, PROT_NONE, kPrivate | MAP_FIXED, -1, 0) == MAP_FAILED) {
    madvise(data_ + begin, length, MADV_DONTNEED);
  }
}

}  // namespace tidepool::moe
