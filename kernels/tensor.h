// The memory of kernels: element types, views of matrices, owned buffers, and the arena of a
// forward pass.
#ifndef TIDEPOOL_KERNELS_TENSOR_H_
#define TIDEPOOL_KERNELS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "kernels/memory.h"

namespace tidepool::kernels {

// The element types of kernels. Quantised types use GGUF's blocks.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ8_0,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
};

// The properties of a type. Every op needs them, some hundreds of times per step, so they are in a
// table, and divisions are replaced by shifts. The table is static, so that files compiled for
// different instruction sets have their own copies.
struct DTypeInfo {
  DType dtype;
  const char* name;
  int block_shift;  // log2 of the number of elements in a block
  int block_bytes;  // bytes of a block in a GGUF row
};
static constexpr DTypeInfo kDTypes[] = {
    {DType::kF32, "F32", 0, 4},         {DType::kF16, "F16", 0, 2},
    {DType::kBF16, "BF16", 0, 2},       {DType::kQ8_0, "Q8_0", 5, 34},
    {DType::kQ4_0, "Q4_0", 5, 18},      {DType::kQ4_1, "Q4_1", 5, 20},
    {DType::kQ5_0, "Q5_0", 5, 22},      {DType::kQ5_1, "Q5_1", 5, 24},
    {DType::kQ2_K, "Q2_K", 8, 84},      {DType::kQ3_K, "Q3_K", 8, 110},
    {DType::kQ4_K, "Q4_K", 8, 144},     {DType::kQ5_K, "Q5_K", 8, 176},
    {DType::kQ6_K, "Q6_K", 8, 210},     {DType::kIQ4_NL, "IQ4_NL", 5, 18},
    {DType::kIQ4_XS, "IQ4_XS", 8, 136}, {DType::kMXFP4, "MXFP4", 5, 17},
};
static constexpr const DTypeInfo& InfoOf(DType dtype) { return kDTypes[static_cast<int>(dtype)]; }
static_assert([] {
  for (const DTypeInfo& info : kDTypes) {
    if (&InfoOf(info.dtype) != &info) return false;
  }
  return true;
}());

static constexpr absl::string_view DTypeName(DType dtype) { return InfoOf(dtype).name; }
// BlockElements returns the number of elements in a block, which is 1 for float types. BlockBytes
// returns the number of bytes of a block in a GGUF row.
static constexpr int BlockElements(DType dtype) { return 1 << InfoOf(dtype).block_shift; }
static constexpr int BlockBytes(DType dtype) { return InfoOf(dtype).block_bytes; }
// Number of blocks for `elements` elements. Requires: `elements` is a multiple of
// BlockElements(dtype).
static constexpr int64_t BlockCount(DType dtype, int64_t elements) {
  return elements >> InfoOf(dtype).block_shift;
}

// A view of a row-major matrix of T. The rows are `stride` elements apart. Does not own the memory.
template <typename T>
struct BasicMatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  BasicMatrixView() = default;
  BasicMatrixView(T* d, int64_t r, int64_t c) : data(d), rows(r), cols(c), stride(c) {}
  BasicMatrixView(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  // A view of mutable rows can be used as a view of const rows.
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator BasicMatrixView<const T>() const { return {data, rows, cols, stride}; }

  T* Row(int64_t row) const { return data + row * stride; }
  BasicMatrixView RowRange(int64_t begin, int64_t count) const {
    return {Row(begin), count, cols, stride};
  }
};
using MatrixView = BasicMatrixView<float>;
using ConstMatrixView = BasicMatrixView<const float>;

// Owns memory that is aligned to kAlignment and not zeroed. Move-only. Ends the process if `memory`
// has no `bytes` bytes left.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes, Memory* memory = HostMemory());

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    Memory* memory;
    void operator()(std::byte* data) const { memory->Free(data); }
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
};

// The memory of one forward pass. Allocations are valid until Reset. Thread-compatible.
class Arena {
 public:
  explicit Arena(size_t bytes, Memory* memory = HostMemory())
      : buffer_(bytes, memory), base_(buffer_.data()), capacity_(buffer_.size()) {}
  // Returns an arena without memory, for a dry run of a pass. Afterwards, high_water() is the size
  // of the arena that the pass needs. The memory that it allocates must not be accessed.
  static Arena Counting() { return Arena(); }

  // Returns `count` elements of T, which are aligned to kAlignment and not initialised. Requires:
  // they fit.
  template <typename T>
  T* Allocate(int64_t count) {
    return reinterpret_cast<T*>(AllocateBytes(count * sizeof(T)));
  }
  MatrixView AllocateMatrix(int64_t rows, int64_t cols) {
    return MatrixView(Allocate<float>(rows * cols), rows, cols);
  }
  // Ends the process if `bytes` more bytes do not fit, and counts them in high_water(). If the
  // memory of an op does not only depend on shapes, the op calls this with an upper bound before it
  // allocates.
  void Reserve(size_t bytes) {
    if (bytes > capacity_ - used_) DieFull(bytes);
    if (used_ + bytes > high_water_) high_water_ = used_ + bytes;
  }
  void Reset() { used_ = 0; }
  // Frees everything that was allocated since used() returned `mark`.
  void ResetTo(size_t mark) { used_ = mark; }

  size_t used() const { return used_; }
  size_t capacity() const { return capacity_; }
  size_t high_water() const { return high_water_; }

 private:
  // The address must not be null, because offsets are added to it.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): no memory is behind this address.
  Arena() : base_(reinterpret_cast<std::byte*>(kAlignment)), capacity_(PTRDIFF_MAX / 2) {}

  // Inlined, because a forward pass allocates some hundreds of times.
  std::byte* AllocateBytes(size_t bytes) {
    const size_t begin = (used_ + kAlignment - 1) & ~(kAlignment - 1);
    if (begin > capacity_ || bytes > capacity_ - begin) DieFull(bytes);
    used_ = begin + bytes;
    if (used_ > high_water_) high_water_ = used_;
    return base_ + begin;
  }
  [[noreturn]] void DieFull(size_t bytes) const;

  Buffer buffer_;
  std::byte* base_;
  size_t capacity_;
  size_t used_ = 0;
  size_t high_water_ = 0;
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_TENSOR_H_
