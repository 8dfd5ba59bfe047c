#include "kernels/memory.h"

#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tidepool::kernels {
namespace {

// Weights and KV are read sequentially, so huge pages reduce the number of TLB misses.
constexpr size_t kHugePage = size_t{2} << 20;

class HostMemoryImpl final : public Memory {
 public:
  std::byte* Allocate(size_t bytes) override {
    const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
    if (rounded < bytes) return nullptr;
    void* data = std::aligned_alloc(alignment, rounded);
#if defined(__linux__)
    // If this fails, everything still works, but more slowly. Only whole huge pages are requested,
    // because the end of a partly used huge page would be wasted. This would add up if a model has
    // many matrices of a few MiB.
    if (data != nullptr && bytes >= kHugePage) {
      (void)madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    }
#endif
    return static_cast<std::byte*>(data);
  }
  void Free(std::byte* data) override { std::free(data); }
  bool on_host() const override { return true; }
};

}  // namespace

Memory* HostMemory() {
  static HostMemoryImpl memory;
  return &memory;
}

}  // namespace tidepool::kernels
