// How kernels find the elements of a paged KV arena (KvLayer in backend.h).
#ifndef TIDEPOOL_KERNELS_CUDA_KV_STORE_LAYOUT_CU_H_
#define TIDEPOOL_KERNELS_CUDA_KV_STORE_LAYOUT_CU_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/base/check.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/rows_device.cu.h"
#include "kernels/math.h"

namespace tidepool::kernels::cuda {

// One load reads at most this number of bytes from the arena.
inline constexpr size_t kKvAlignment = 16;

// The keys or the values of one KV head in one block.
struct KvHead {
  std::byte* elements;
  uint16_t* scales;  // only for kQ8_0
};

// Keys or values of a layer.
struct KvPart {
  std::byte* first = nullptr;  // start of head 0 in block 0
  int64_t block_bytes = 0;
  int64_t head_bytes = 0;
  int64_t scale_bytes = 0;  // bytes of a head's scales; 0 for types without scales
  int dim = 0;

  TIDEPOOL_DEVICE KvHead At(int32_t block, int head) const {
    std::byte* base = first + block * block_bytes + head * head_bytes;
    return {base + scale_bytes, reinterpret_cast<uint16_t*>(base)};
  }
};

inline KvPart KvPartOf(const KvLayer& layer, size_t offset, int dim) {
  std::byte* first = layer.arena + offset;
  CHECK(reinterpret_cast<uintptr_t>(first) % kKvAlignment == 0 &&
        layer.block_bytes % kKvAlignment == 0)
      << "KV at offset " << offset << " of blocks of " << layer.block_bytes << " bytes";
  const auto head_bytes = static_cast<int64_t>(KvHeadBytes(layer.dtype, dim));
  const int64_t scale_bytes = layer.dtype == DType::kQ8_0 ? int64_t{dim} * 2 : 0;
  return {first, static_cast<int64_t>(layer.block_bytes), head_bytes, scale_bytes, dim};
}
inline KvPart KeysOf(const KvLayer& layer) { return KvPartOf(layer, layer.k_offset, layer.k_dim); }
inline KvPart ValuesOf(const KvLayer& layer) {
  return KvPartOf(layer, layer.v_offset, layer.v_dim);
}

// Loads a T that no kernel writes at the same time. Requires: `at` is aligned for T.
template <typename T>
TIDEPOOL_DEVICE T LoadWords(const std::byte* at) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 16) {
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const uint4*>(at)));
  } else if constexpr (sizeof(T) == 8) {
    return __builtin_bit_cast(T, __ldg(reinterpret_cast<const uint2*>(at)));
  } else {
    return __ldg(reinterpret_cast<const T*>(at));
  }
#else
  T value;
  __builtin_memcpy(&value, at, sizeof(T));
  return value;
#endif
}

// Returns the exact value of a float16.
TIDEPOOL_DEVICE float HalfValue(uint32_t bits) {
#ifdef __CUDA_ARCH__
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(bits)));
  return value;
#else
  return F16ToF32(static_cast<uint16_t>(bits));
#endif
}

template <DType kType>
inline constexpr int kKvElementBytes = kType == DType::kF32    ? 4
                                       : kType == DType::kQ8_0 ? 1
                                                               : 2;

// Converts the elements in some 32-bit words, the lowest bits first. For kQ8_0, they are not
// multiplied by their scales.
template <DType kType, int kWords>
TIDEPOOL_DEVICE void UnpackWords(const uint32_t (&words)[kWords], float* out) {
  TIDEPOOL_UNROLL
  for (int w = 0; w < kWords; ++w) {
    if constexpr (kType == DType::kF32) {
      out[w] = FloatFromBits(words[w]);
    } else if constexpr (kType == DType::kF16) {
      out[2 * w] = HalfValue(words[w] & 0xffff);
      out[2 * w + 1] = HalfValue(words[w] >> 16);
    } else if constexpr (kType == DType::kBF16) {
      out[2 * w] = FloatFromBits(words[w] << 16);
      out[2 * w + 1] = FloatFromBits(words[w] & 0xffff0000);
    } else {
      TIDEPOOL_UNROLL
      for (int i = 0; i < 4; ++i) {
        out[4 * w + i] = static_cast<float>(static_cast<int8_t>(words[w] >> (8 * i) & 0xff));
      }
    }
  }
}

// Loads the elements [at, at + n) of a head, n = kCount. They are n consecutive elements, aligned
// to n elements.
template <DType kType, int kCount>
TIDEPOOL_DEVICE void LoadElements(const KvHead& head, int64_t at, float (&out)[kCount]) {
  constexpr int kBytes = kCount * kKvElementBytes<kType>;
  const std::byte* from = head.elements + at * kKvElementBytes<kType>;
  if constexpr (kBytes == 1) {
    out[0] = static_cast<float>(LoadWords<int8_t>(from));
  } else if constexpr (kBytes == 2 && kCount == 2) {
    const uint32_t pair = LoadWords<uint16_t>(from);
    out[0] = static_cast<float>(static_cast<int8_t>(pair & 0xff));
    out[1] = static_cast<float>(static_cast<int8_t>(pair >> 8));
  } else if constexpr (kBytes == 2) {
    const uint32_t bits = LoadWords<uint16_t>(from);
    out[0] = kType == DType::kF16 ? HalfValue(bits) : FloatFromBits(bits << 16);
  } else if constexpr (kBytes == 4) {
    const uint32_t words[1] = {LoadWords<uint32_t>(from)};
    UnpackWords<kType>(words, out);
  } else if constexpr (kBytes == 8) {
    const auto pair = LoadWords<U32x2>(from);
    const uint32_t words[2] = {pair.x, pair.y};
    UnpackWords<kType>(words, out);
  } else {
    TIDEPOOL_UNROLL
    for (int i = 0; i < kBytes / 16; ++i) {
      const auto four = LoadWords<U32x4>(from + 16 * i);
      const uint32_t words[4] = {four.x, four.y, four.z, four.w};
      UnpackWords<kType>(words, out + i * (16 / kKvElementBytes<kType>));
    }
  }
}

// Loads the scales [at, at + kCount) of a head, aligned to kCount scales.
template <int kCount>
TIDEPOOL_DEVICE void LoadScales(const KvHead& head, int64_t at, float (&out)[kCount]) {
  const KvHead scales = {reinterpret_cast<std::byte*>(head.scales), nullptr};
  LoadElements<DType::kF16>(scales, at, out);
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_KV_STORE_LAYOUT_CU_H_
