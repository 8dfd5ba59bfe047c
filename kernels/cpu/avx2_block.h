// Reads quantised panels into AVX2 registers. Only for files that are compiled for AVX2.
#ifndef TIDEPOOL_KERNELS_CPU_AVX2_BLOCK_H_
#define TIDEPOOL_KERNELS_CPU_AVX2_BLOCK_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/code_tables.h"
#include "kernels/panel.h"

namespace tidepool::kernels {

static inline __m256i LoadBytes(const void* data) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(data));
}
static inline __m128i Load16(const std::byte* data) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}
static inline __m128i Load8(const std::byte* data) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(data));
}
// Loads eight f16.
static inline __m256 LoadHalves(const void* data) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(data)));
}
// Converts eight bytes, one for each row, to floats.
static inline __m256 UnsignedFloats(const std::byte* bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(Load8(bytes)));
}
static inline __m256 SignedFloats(const std::byte* bytes) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(Load8(bytes)));
}

// Applies math.h's HalfOfE8M0 to eight bytes.
static inline __m256 HalvesOfE8M0(const std::byte* bytes) {
  const __m256i e = _mm256_cvtepu8_epi32(Load8(bytes));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, is_small));
}

// Returns whether Quants returns int8 numbers. If not, it returns unsigned bytes, from which
// QuantZero must be subtracted.
static constexpr bool HasSignedQuants(DType dtype) {
  return dtype == DType::kQ8_0 || dtype == DType::kIQ4_NL || dtype == DType::kIQ4_XS;
}
static constexpr int QuantZero(DType dtype) {
  return dtype == DType::kMXFP4 ? 12 : FormatOf(dtype).zero;
}

// Number of groups whose products with int8 are summed in int16 before they are widened;
// avx2_matmul.cc explains it. It is 1 for signed quants.
static constexpr int GroupsInInt16(DType dtype) {
  const QuantFormat format = FormatOf(dtype);
  if (HasSignedQuants(dtype)) return 1;
  if (format.code_bits + format.extra_bits == 6) return 2;
  return format.code_bits + format.extra_bits == 5 || HasCodeTable(dtype) || format.halves ? 4 : 8;
}

// Converts the codes of a type with a code table to their values. For MXFP4, the values are
// increased by 12.
template <DType kType>
static inline __m256i LookUp(__m256i codes) {
  if constexpr (kType == DType::kMXFP4) {
    const __m128i table = _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes);
  } else {
    const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(kIq4Values));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), codes);
  }
}

// Returns the bits [kShift, kShift + kBits) of every byte, moved to bit kTo.
template <int kShift, int kBits, int kTo>
static inline __m256i Bits(__m256i bytes) {
  const __m256i mask = _mm256_set1_epi8(static_cast<char>(((1 << kBits) - 1) << kTo));
  if constexpr (kShift > kTo) bytes = _mm256_srli_epi16(bytes, kShift - kTo);
  if constexpr (kShift < kTo) bytes = _mm256_slli_epi16(bytes, kTo - kShift);
  return _mm256_and_si256(bytes, mask);
}

// Returns group kGroup of a block: in each row's lane, the four bytes are the columns 4g to 4g + 3.
template <DType kType, int kGroup>
static inline __m256i Quants(const std::byte* block) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const std::byte* codes = block + kFormat.codes();
  const std::byte* extra = block + kFormat.extra();
  __m256i q;
  if constexpr (kFormat.code_bits == 8) {
    return LoadBytes(codes + kGroup * kVectorBytes);
  } else if constexpr (kFormat.code_bits == 4) {
    q = Bits<kGroup / 4 * 4, 4, 0>(LoadBytes(codes + kGroup % 4 * kVectorBytes));
  } else {
    q = Bits<kGroup / 2 * 2, 2, 0>(LoadBytes(codes + kGroup % 2 * kVectorBytes));
  }
  if constexpr (kFormat.extra_bits == 1) {
    q = _mm256_or_si256(q, Bits<kGroup, 1, kFormat.code_bits>(LoadBytes(extra)));
  } else if constexpr (kFormat.extra_bits == 2) {
    const __m256i pairs = LoadBytes(extra + kGroup % 2 * kVectorBytes);
    q = _mm256_or_si256(q, Bits<kGroup / 2 * 2, 2, kFormat.code_bits>(pairs));
  }
  if constexpr (HasCodeTable(kType)) q = LookUp<kType>(q);
  return q;
}

// Unpacks all eight groups of a block.
template <DType kType>
static inline void UnpackGroups(const std::byte* block, __m256i (&groups)[8]) {
  groups[0] = Quants<kType, 0>(block);
  groups[1] = Quants<kType, 1>(block);
  groups[2] = Quants<kType, 2>(block);
  groups[3] = Quants<kType, 3>(block);
  groups[4] = Quants<kType, 4>(block);
  groups[5] = Quants<kType, 5>(block);
  groups[6] = Quants<kType, 6>(block);
  groups[7] = Quants<kType, 7>(block);
}

// The scales of a block's rows, in the form that the products of ops.h need. Every type has float
// scales. Types with one scale per half of the block also have a pair of int16 (half 0, half 1) in
// each row's lane. Unused members are uninitialised, because clearing them would cost more than the
// block's product.
struct RowScales {
  __m256 step;         // s or d of ops.h
  __m256 min;          // the added term: m or -(dmin mn); for types with two halves, -dmin
  __m256i step_pairs;  // sc of ops.h
  __m256i min_pairs;   // mn of ops.h
};

template <DType kType>
static inline void LoadScales(const std::byte* record, const std::byte* block, RowScales* s) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const std::byte* floats = kFormat.head > 0 ? record : block;
  const __m256 sign = _mm256_set1_ps(-0.0f);
  s->step = kType == DType::kMXFP4 ? HalvesOfE8M0(block) : LoadHalves(floats);
  if constexpr (kFormat.has_min) s->min = LoadHalves(floats + 2 * kPanelRows);
  if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
    s->step = _mm256_mul_ps(s->step, UnsignedFloats(block));
    s->min = _mm256_xor_ps(_mm256_mul_ps(s->min, UnsignedFloats(block + kPanelRows)), sign);
  } else if constexpr (kType == DType::kIQ4_XS) {
    s->step = _mm256_mul_ps(s->step, SignedFloats(block));
  } else if constexpr (kType == DType::kQ2_K) {
    const __m256i both = _mm256_cvtepu8_epi16(Load16(block));
    s->step_pairs = _mm256_and_si256(both, _mm256_set1_epi16(15));
    s->min_pairs = _mm256_srli_epi16(both, 4);
    s->min = _mm256_xor_ps(s->min, sign);
  } else if constexpr (kFormat.halves) {
    s->step_pairs = _mm256_cvtepi8_epi16(Load16(block));
  }
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_AVX2_BLOCK_H_
