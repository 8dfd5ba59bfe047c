// Inputs for kernel tests: reproducible noise, weights of every type, memory full of NaNs.
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

inline constexpr DType kAllDTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ8_0,
                                       DType::kQ4_0, DType::kQ4_1,   DType::kQ5_0,   DType::kQ5_1,
                                       DType::kQ2_K, DType::kQ3_K,   DType::kQ4_K,   DType::kQ5_K,
                                       DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

// The offsets of the f16 scales in a GGUF block of one type: d, then m or dmin.
struct ScalePlaces {
  int count;
  int offset;
};
inline ScalePlaces ScalePlacesOf(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kMXFP4:
      return {0, 0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {2, 0};
    case DType::kQ2_K:
      return {2, 80};
    case DType::kQ3_K:
      return {1, 108};
    case DType::kQ6_K:
      return {1, 208};
    default:
      return {1, 0};
  }
}

// Returns `cols`, rounded up to whole blocks of the type.
inline int64_t WholeBlocks(DType dtype, int64_t cols) {
  const int elements = BlockElements(dtype);
  return (cols + elements - 1) / elements * elements;
}

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
  // Returns a number in [-1, 1).
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
  std::vector<std::byte> packed() const {
    return std::vector<std::byte>(packed_.data(), packed_.data() + packed_.size());
  }
  const std::vector<std::byte>& source() const { return source_; }

  // Returns a bound for each element: every term from which its product is computed is at most
  // this. The bound is |w|. For types with minima it is |d q| + |m|, because these terms are summed
  // separately. A block that is packed without its dmin or m dequantises to d q alone.
  std::vector<double> Magnitudes(int64_t row) const {
    std::vector<float> values(cols_);
    UnpackRow(matrix(), row, absl::MakeSpan(values));
    std::vector<float> without = values;
    const ScalePlaces places = ScalePlacesOf(dtype_);
    if (places.count == 2) {
      const int64_t row_bytes = cols_ / BlockElements(dtype_) * BlockBytes(dtype_);
      std::vector<std::byte> bytes(source_.begin() + row * row_bytes,
                                   source_.begin() + (row + 1) * row_bytes);
      for (int64_t at = 0; at < row_bytes; at += BlockBytes(dtype_)) {
        std::memset(bytes.data() + at + places.offset + 2, 0, 2);
      }
      Buffer packed(PackedBytes(dtype_, 1, cols_));
      Pack(dtype_, 1, cols_, bytes.data(), packed.data());
      UnpackRow({dtype_, 1, cols_, packed.data()}, 0, absl::MakeSpan(without));
    }
    std::vector<double> result(cols_);
    for (int64_t k = 0; k < cols_; ++k) {
      result[k] = std::abs(without[k]) + std::abs(values[k] - without[k]);
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
    // These scales keep weights near 1, for any product of a code and its integer scale.
    if (dtype_ == DType::kMXFP4) block[0] = static_cast<std::byte>(122 + noise->Below(4));
    const bool super_block = BlockElements(dtype_) == 256;
    const float steps[] = {super_block                                          ? 0.0005f
                           : dtype_ == DType::kQ8_0 || dtype_ == DType::kIQ4_NL ? 0.01f
                                                                                : 0.1f,
                           super_block ? 0.02f : 1.0f};
    const ScalePlaces places = ScalePlacesOf(dtype_);
    for (int i = 0; i < places.count; ++i) {
      const uint16_t scale = F32ToF16(noise->Unit() * steps[i]);
      std::memcpy(block + places.offset + ptrdiff_t{2} * i, &scale, 2);
    }
  }

  DType dtype_;
  int64_t rows_;
  int64_t cols_;
  std::vector<std::byte> source_;
  Buffer packed_;
};

// Fills free memory with NaNs of every type, so that reads of uninitialised memory are detected.
inline void Spoil(Arena* arena) {
  const size_t mark = arena->used();
  const size_t free = arena->capacity() - mark - 2 * kAlignment;
  std::memset(arena->Allocate<std::byte>(free), 0xff, free);
  arena->ResetTo(mark);
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_TEST_DATA_H_
