#include "tests/kernels/protected_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "kernels/base/check.h"

namespace tidepool::kernels {
namespace {

constexpr size_t kSpoiledBytes = size_t{64} << 20;
constexpr size_t kHugeBytes = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

ProtectedMemory::~ProtectedMemory() {
  Release();
  CHECK(allocated_.empty()) << allocated_.size()
                            << " allocations of a backend that no longer exists";
}

std::byte* ProtectedMemory::Allocate(size_t bytes) {
  const size_t size = RoundUp(bytes, kAlignment);
  const size_t pages = RoundUp(size, PageBytes());
  if (pages < bytes || pages + PageBytes() < pages) return nullptr;
  base::MutexLock lock(&mutex_);
  if (size > left_) return nullptr;
  void* const begin = mmap(nullptr, pages + PageBytes(), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (begin == MAP_FAILED) return nullptr;
  // With huge pages, opening and closing large memory is much faster.
  if (pages >= kHugeBytes) madvise(begin, pages, MADV_HUGEPAGE);
  const Pages allocation = {static_cast<std::byte*>(begin), pages, size};
  std::byte* const data = allocation.begin + pages - size;
  if (bytes <= kSpoiledBytes) std::memset(data, 0xff, size);
  CHECK_EQ(mprotect(begin, pages, PROT_NONE), 0);
  // The kernel never merges shared with private memory. Merging and splitting takes time.
  CHECK(mmap(allocation.begin + pages, PageBytes(), PROT_NONE,
             MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
  allocated_.emplace(data, allocation);
  left_ -= size;
  return data;
}

void ProtectedMemory::Free(std::byte* data) {
  base::MutexLock lock(&mutex_);
  const auto found = allocated_.find(data);
  CHECK(found != allocated_.end()) << "this memory was not allocated";
  freed_.push_back(found->second);
  left_ += found->second.size;
  allocated_.erase(found);
}

bool ProtectedMemory::Owns(const void* data, size_t bytes) const {
  const auto* const begin = static_cast<const std::byte*>(data);
  base::MutexLock lock(&mutex_);
  auto found = allocated_.upper_bound(begin);
  if (found == allocated_.begin()) return false;
  --found;
  const auto offset = static_cast<size_t>(begin - found->first);
  return offset <= found->second.size && bytes <= found->second.size - offset;
}

void ProtectedMemory::Release() {
  base::MutexLock lock(&mutex_);
  for (const Pages& pages : freed_) Unmap(pages);
  freed_.clear();
}

void ProtectedMemory::Unmap(const Pages& pages) {
  CHECK_EQ(munmap(pages.begin, pages.bytes + PageBytes()), 0);
}

void ProtectedMemory::Protect(int rights) {
  const auto protect = [rights](const Pages& pages) {
    CHECK_EQ(mprotect(pages.begin, pages.bytes, rights), 0);
  };
  for (const auto& [data, pages] : allocated_) protect(pages);
  for (const Pages& pages : freed_) protect(pages);
}

void ProtectedMemory::WhileOpen(absl::FunctionRef<void()> body) {
  base::MutexLock lock(&mutex_);
  Protect(PROT_READ | PROT_WRITE);
  body();
  Protect(PROT_NONE);
}

}  // namespace tidepool::kernels
