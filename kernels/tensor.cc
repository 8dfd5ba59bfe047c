#include "kernels/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tidepool::kernels {
namespace {

// Weights and KV are streamed: over huge pages that takes far fewer TLB misses.
constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

struct DTypeInfo {
  DType dtype;
  absl::string_view name;
  int block_elements;
  int block_bytes;
};

constexpr DTypeInfo kInfos[] = {
    {DType::kF32, "F32", 1, 4},           {DType::kF16, "F16", 1, 2},
    {DType::kBF16, "BF16", 1, 2},         {DType::kQ8_0, "Q8_0", 32, 34},
    {DType::kQ4_0, "Q4_0", 32, 18},       {DType::kQ4_1, "Q4_1", 32, 20},
    {DType::kQ5_0, "Q5_0", 32, 22},       {DType::kQ5_1, "Q5_1", 32, 24},
    {DType::kQ2_K, "Q2_K", 256, 84},      {DType::kQ3_K, "Q3_K", 256, 110},
    {DType::kQ4_K, "Q4_K", 256, 144},     {DType::kQ5_K, "Q5_K", 256, 176},
    {DType::kQ6_K, "Q6_K", 256, 210},     {DType::kIQ4_NL, "IQ4_NL", 32, 18},
    {DType::kIQ4_XS, "IQ4_XS", 256, 136}, {DType::kMXFP4, "MXFP4", 32, 17},
};

const DTypeInfo& Info(DType dtype) {
  const size_t index = static_cast<size_t>(dtype);
  CHECK(index < std::size(kInfos) && kInfos[index].dtype == dtype) << "dtype " << index;
  return kInfos[index];
}

}  // namespace

absl::string_view DTypeName(DType dtype) { return Info(dtype).name; }
int BlockElements(DType dtype) { return Info(dtype).block_elements; }
int BlockBytes(DType dtype) { return Info(dtype).block_bytes; }

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
