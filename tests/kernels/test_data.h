// Inputs for tests of kernels: reproducible noise, weights of every type, memory full of garbage.
#ifndef TIDEPOOL_TESTS_KERNELS_TEST_DATA_H_
#define TIDEPOOL_TESTS_KERNELS_TEST_DATA_H_

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/math.h"
#include "kernels/packed_matrix.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {

inline constexpr DType kAllDTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16,
                                       DType::kQ8_0, DType::kQ4_0, DType::kQ4_1};

// splitmix64: the same numbers everywhere.
class Noise {
 public:
  explicit Noise(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  int Below(int n) { return static_cast<int>(Next() % n); }
  // In [-1, 1).
  float Unit() { return static_cast<float>(static_cast<int64_t>(Next()) * 0x1p-63); }
  std::vector<float> Floats(int64_t n, float scale = 1) {
    std::vector<float> values(n);
    for (float& value : values) value = Unit() * scale;
    return values;
  }

 private:
  uint64_t state_;
};

// Random rows of one type, as GGUF blocks and packed.
class Weight {
 public:
  Weight(DType dtype, int64_t rows, int64_t cols, uint64_t seed)
      : dtype_(dtype), rows_(rows), cols_(cols), packed_(PackedBytes(dtype, rows, cols)) {
    Noise noise(seed);
    const int64_t blocks = rows * cols / BlockElements(dtype);
    source_.resize(blocks * BlockBytes(dtype));
    for (int64_t b = 0; b < blocks; ++b) FillBlock(&noise, source_.data() + b * BlockBytes(dtype));
    std::memset(packed_.data(), 0xff, packed_.size());
    Pack(dtype, rows, cols, source_.data(), packed_.data());
  }

  PackedMatrix matrix() const { return {dtype_, rows_, cols_, packed_.data()}; }
  const std::vector<std::byte>& source() const { return source_; }

  // For each element a bound on every term that its product is computed from: |w|, and for Q4_1
  // |d q| + |m|, whose terms are summed apart.
  std::vector<double> Magnitudes(int64_t row) const {
    std::vector<float> values(cols_);
    UnpackRow(matrix(), row, absl::MakeSpan(values));
    std::vector<double> result(cols_);
    for (int64_t k = 0; k < cols_; ++k) {
      double m = 0;
      if (dtype_ == DType::kQ4_1) {
        uint16_t half;
        const int64_t block = (row * cols_ + k) / 32;
        std::memcpy(&half, source_.data() + block * BlockBytes(dtype_) + 2, 2);
        m = F16ToF32(half);
      }
      result[k] = std::abs(values[k] - m) + std::abs(m);
    }
    return result;
  }

 private:
  void FillBlock(Noise* noise, std::byte* block) const {
    if (BlockElements(dtype_) == 1) {
      const float value = noise->Unit();
      const uint16_t half = dtype_ == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
      if (dtype_ == DType::kF32) {
        std::memcpy(block, &value, 4);
      } else {
        std::memcpy(block, &half, 2);
      }
      return;
    }
    for (int i = 0; i < BlockBytes(dtype_); ++i) block[i] = static_cast<std::byte>(noise->Next());
    const float step = dtype_ == DType::kQ8_0 ? 0.01f : 0.1f;
    const uint16_t d = F32ToF16(noise->Unit() * step);
    std::memcpy(block, &d, 2);
    if (dtype_ != DType::kQ4_1) return;
    const uint16_t m = F32ToF16(noise->Unit());
    std::memcpy(block + 2, &m, 2);
  }

  DType dtype_;
  int64_t rows_;
  int64_t cols_;
  std::vector<std::byte> source_;
  Buffer packed_;
};

// Fills free memory with NaNs of every type, so that what reads it without writing it shows.
inline void Spoil(Arena* arena) {
  const size_t mark = arena->used();
  const size_t free = arena->capacity() - mark - 2 * kAlignment;
  std::memset(arena->Allocate<std::byte>(free), 0xff, free);
  arena->ResetTo(mark);
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_TEST_DATA_H_
