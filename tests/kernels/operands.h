// Operands of ops in the memory of a backend, for tests. The memory may be one that host code
// cannot touch.
#ifndef TIDEPOOL_TESTS_KERNELS_OPERANDS_H_
#define TIDEPOOL_TESTS_KERNELS_OPERANDS_H_

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {

// Returns the elements of a, then those of b.
inline std::vector<float> Joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Copies `count` elements from a backend's memory. Fails the test if the backend returns an error.
template <typename T>
std::vector<T> CopiedOut(KernelBackend& backend, const T* data, int64_t count) {
  std::vector<T> values(count);
  if (count == 0) return values;
  const absl::Status status =
      backend.CopyOut(reinterpret_cast<const std::byte*>(data),
                      {reinterpret_cast<std::byte*>(values.data()), count * sizeof(T)});
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

template <typename T>
void CopyIn(KernelBackend& backend, absl::Span<const T> values, T* to) {
  backend.CopyIn({reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)},
                 reinterpret_cast<std::byte*>(to));
}

// Elements of T in the memory of a backend, which must outlive them.
template <typename T>
class Operand {
 public:
  Operand(KernelBackend& backend, const std::vector<T>& values)
      : backend_(backend),
        size_(static_cast<int64_t>(values.size())),
        buffer_(values.size() * sizeof(T), backend.memory()) {
    if (size_ > 0) CopyIn<T>(backend, values, data());
  }

  T* data() const { return reinterpret_cast<T*>(buffer_.data()); }
  absl::Span<const T> span() const { return {data(), static_cast<size_t>(size_)}; }
  std::vector<T> Read() const { return CopiedOut(backend_, data(), size_); }

 private:
  KernelBackend& backend_;
  const int64_t size_;
  const Buffer buffer_;
};

// A matrix of floats in the memory of a backend. Its rows are `stride` elements apart.
class MatrixOperand : public Operand<float> {
 public:
  MatrixOperand(KernelBackend& backend, const std::vector<float>& values, int64_t rows,
                int64_t cols, int64_t stride)
      : Operand(backend, values), view_(data(), rows, cols, stride) {}
  MatrixOperand(KernelBackend& backend, const std::vector<float>& values, int64_t rows,
                int64_t cols)
      : MatrixOperand(backend, values, rows, cols, cols) {}

  MatrixView view() const { return view_; }

 private:
  const MatrixView view_;
};

// A copy of a weight in the memory of a backend.
class WeightOperand {
 public:
  WeightOperand(KernelBackend& backend, const Weight& weight)
      : matrix_(weight.matrix()), packed_(backend, weight.packed()) {
    matrix_.data = packed_.data();
  }

  const PackedMatrix& matrix() const { return matrix_; }

 private:
  PackedMatrix matrix_;
  const Operand<std::byte> packed_;
};

// An arena in the memory of a backend, filled with NaNs.
class ArenaOperand : public Arena {
 public:
  ArenaOperand(KernelBackend& backend, size_t bytes) : Arena(bytes, backend.memory()) {
    constexpr size_t kChunk = size_t{64} << 10;
    const std::vector<std::byte> nans(kChunk, std::byte{0xff});
    while (used() < capacity()) {
      const size_t count = std::min(kChunk, capacity() - used());
      CopyIn<std::byte>(backend, absl::MakeConstSpan(nans).first(count),
                        Allocate<std::byte>(static_cast<int64_t>(count)));
    }
    Reset();
  }
};

// Pages of host memory that are pinned for a backend. The backend must outlive them. The floats are
// at the beginning.
class PinnedFloats {
 public:
  PinnedFloats(KernelBackend& backend, const std::vector<float>& values)
      : backend_(backend), memory_(Allocate(values.size() * sizeof(float))) {
    std::copy(values.begin(), values.end(), data());
    const absl::Status status = backend.PinHost(memory_);
    EXPECT_TRUE(status.ok()) << status;
  }
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;
  ~PinnedFloats() {
    backend_.UnpinHost(memory_);
    std::free(memory_.data());
  }

  float* data() const { return reinterpret_cast<float*>(memory_.data()); }
  absl::Span<const std::byte> Bytes(int64_t first, int64_t count) const {
    return memory_.subspan(first * sizeof(float), count * sizeof(float));
  }

 private:
  static absl::Span<std::byte> Allocate(size_t bytes) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t rounded = (bytes + page - 1) / page * page;
    auto* const data = static_cast<std::byte*>(std::aligned_alloc(page, rounded));
    std::fill_n(data, rounded, std::byte{0});
    return {data, rounded};
  }

  KernelBackend& backend_;
  const absl::Span<std::byte> memory_;
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_OPERANDS_H_
