// The memory that kernels work on: element types, borrowed matrices, owned buffers, a step's arena.
#ifndef TIDEPOOL_KERNELS_TENSOR_H_
#define TIDEPOOL_KERNELS_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/strings/string_view.h"
#include "kernels/base/check.h"

namespace tidepool::kernels {

// Element types that kernels compute with. Quantised types are blocks of GGUF's own definition.
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

absl::string_view DTypeName(DType dtype);
// Elements that share one block (1 for float types), and the bytes of that block in a GGUF row.
int BlockElements(DType dtype);
int BlockBytes(DType dtype);

// Borrowed row-major matrix of T; rows are `stride` elements apart. Never frees.
template <typename T>
struct BasicMatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  BasicMatrixView() = default;
  BasicMatrixView(T* d, int64_t r, int64_t c) : data(d), rows(r), cols(c), stride(c) {}
  BasicMatrixView(T* d, int64_t r, int64_t c, int64_t s) : data(d), rows(r), cols(c), stride(s) {}
  // A view of mutable rows is also a view of const rows.
  operator BasicMatrixView<const T>() const { return {data, rows, cols, stride}; }

  T* Row(int64_t row) const { return data + row * stride; }
  BasicMatrixView RowRange(int64_t begin, int64_t count) const {
    return {Row(begin), count, cols, stride};
  }
};
using MatrixView = BasicMatrixView<float>;
using ConstMatrixView = BasicMatrixView<const float>;

inline constexpr size_t kAlignment = 64;

// Move-only owner of host memory, aligned to kAlignment. Not zeroed.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes);

  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }

 private:
  struct Free {
    void operator()(std::byte* data) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
};

// Memory of one forward pass: allocations live until Reset. Thread-compatible.
class Arena {
 public:
  explicit Arena(size_t bytes) : buffer_(bytes) {}

  // `count` elements of T, aligned to kAlignment, not initialised. Requires that they fit: the
  // owner sizes the arena from its limits.
  template <typename T>
  T* Allocate(int64_t count) {
    return reinterpret_cast<T*>(AllocateBytes(count * sizeof(T)));
  }
  MatrixView AllocateMatrix(int64_t rows, int64_t cols) {
    return MatrixView(Allocate<float>(rows * cols), rows, cols);
  }
  void Reset() { used_ = 0; }
  // Gives back everything allocated since used() was `mark`.
  void ResetTo(size_t mark) { used_ = mark; }

  size_t used() const { return used_; }
  size_t capacity() const { return buffer_.size(); }
  size_t high_water() const { return high_water_; }

 private:
  std::byte* AllocateBytes(size_t bytes);

  Buffer buffer_;
  size_t used_ = 0;
  size_t high_water_ = 0;
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_TENSOR_H_
