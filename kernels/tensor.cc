#include "kernels/tensor.h"

#include <algorithm>
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tidepool::kernels {
namespace {

// Weights and KV are read sequentially, so huge pages reduce the number of TLB misses.
constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

Buffer::Buffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const size_t rounded = RoundUp(bytes, alignment);
  CHECK(rounded >= bytes) << "a buffer of " << bytes << " bytes";
  void* data = std::aligned_alloc(alignment, rounded);
  CHECK(data != nullptr) << "out of memory for a buffer of " << bytes << " bytes";
#if defined(__linux__)
  // If this fails, everything still works, but more slowly. Only whole huge pages are requested,
  // because the end of a partly used huge page would be wasted. This would add up if a model has
  // many matrices of a few MiB.
  if (bytes >= kHugePage) (void)madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
#endif
  data_.reset(static_cast<std::byte*>(data));
}

void Buffer::Free::operator()(std::byte* data) const { std::free(data); }

void Arena::DieFull(size_t bytes) const {
  CHECK(false) << "the arena of " << capacity() << " bytes is full: " << bytes
               << " more requested with " << used_ << " used";
  std::abort();
}

}  // namespace tidepool::kernels
