#include "kernels/tensor.h"

#include <algorithm>
#include <cstdlib>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tidepool::kernels {
namespace {

// Weights and KV are streamed: over huge pages that takes far fewer TLB misses.
constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

absl::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kQ8_0:
      return "Q8_0";
    case DType::kQ4_0:
      return "Q4_0";
    case DType::kQ4_1:
      return "Q4_1";
  }
  CHECK(false) << "dtype " << static_cast<int>(dtype);
  return "";
}

int BlockElements(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return 1;
    case DType::kQ8_0:
    case DType::kQ4_0:
    case DType::kQ4_1:
      return 32;
  }
  CHECK(false) << "dtype " << static_cast<int>(dtype);
  return 0;
}

int BlockBytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kQ8_0:
      return 34;
    case DType::kQ4_0:
      return 18;
    case DType::kQ4_1:
      return 20;
  }
  CHECK(false) << "dtype " << static_cast<int>(dtype);
  return 0;
}

Buffer::Buffer(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  const size_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
  const size_t rounded = RoundUp(bytes, alignment);
  CHECK(rounded >= bytes) << "a buffer of " << bytes << " bytes";
  void* data = std::aligned_alloc(alignment, rounded);
  CHECK(data != nullptr) << "out of memory for a buffer of " << bytes << " bytes";
#if defined(__linux__)
  // Advice only: without huge pages everything works, slower.
  if (bytes >= kHugePage) (void)madvise(data, rounded, MADV_HUGEPAGE);
#endif
  data_.reset(static_cast<std::byte*>(data));
}

void Buffer::Free::operator()(std::byte* data) const { std::free(data); }

std::byte* Arena::AllocateBytes(size_t bytes) {
  const size_t begin = RoundUp(used_, kAlignment);
  CHECK(begin <= capacity() && bytes <= capacity() - begin)
      << "the arena of " << capacity() << " bytes is full: " << bytes << " more asked with "
      << used_ << " used";
  used_ = begin + bytes;
  high_water_ = std::max(high_water_, used_);
  return buffer_.data() + begin;
}

}  // namespace tidepool::kernels
