// The products for x86-64 with AVX-512 F, BW, VL, DQ and VNNI. They are the same as in avx512.cc,
// except that dot products of bytes are one instruction, also in the product of a single row.
#include "kernels/cpu/kernel_table.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && defined(__AVX512VL__) && \
    defined(__AVX512DQ__)

#include <immintrin.h>

#include "kernels/cpu/avx512_matmul.h"

namespace tidepool::kernels {
namespace {

// The instruction dpbusd multiplies unsigned weights by signed activations and adds four products
// to a lane, without rounding or saturation. Signed weights are made unsigned by adding 128. The
// half sums of the activation are used to subtract this from the result.
template <DType kType>
class VnniDots {
 public:
  [[gnu::always_inline]] explicit VnniDots(const PairBlock& w) {
    constexpr int kZero = HasSignedQuants(kType) ? 128 : QuantZero(kType);
    start_ = _mm512_set1_epi16(-kZero);
    if constexpr (kHalves) {
      start_ = _mm512_mullo_epi16(start_, w.step_pairs);
      for (int half = 0; half < 2; ++half) steps_[half] = HalfOfPairs(w.step_pairs, half);
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      quants_[g] = HasSignedQuants(kType) ? _mm512_xor_si512(w.quants[g], _mm512_set1_epi8(-128))
                                          : w.quants[g];
    }
  }

  [[gnu::always_inline]] __m512i Dot(const int8_t* x, __m512i half_sums) const {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i start = kHasZero ? _mm512_madd_epi16(half_sums, start_) : zero;
    if constexpr (kHalves) {
      const __m512i first = _mm512_mullo_epi32(Add<0, 4>(zero, x), steps_[0]);
      const __m512i second = _mm512_mullo_epi32(Add<4, 4>(zero, x), steps_[1]);
      return _mm512_add_epi32(_mm512_add_epi32(start, first), second);
    } else {
      return Add<0, 8>(start, x);
    }
  }

 private:
  static constexpr bool kHalves = FormatOf(kType).halves;
  static constexpr bool kHasZero = HasSignedQuants(kType) || QuantZero(kType) != 0;

  template <int kFirst, int kCount>
  [[gnu::always_inline]] __m512i Add(__m512i sum, const int8_t* x) const {
#pragma GCC unroll 8
    for (int g = kFirst; g < kFirst + kCount; ++g) {
      sum = _mm512_dpbusd_epi32(sum, quants_[g], BroadcastLane(x + 4 * g));
    }
    return sum;
  }

  __m512i quants_[8];
  __m512i start_;     // int16 pairs: the factors of the half sums
  __m512i steps_[2];  // int32: the factors of the dot products of each half
};

__m256i BroadcastHalf(const void* data) { return _mm512_castsi512_si256(BroadcastLane(data)); }

// One unpacked block of one panel, with the same arithmetic as VnniDots.
template <DType kType>
class PanelDots {
 public:
  [[gnu::always_inline]] PanelDots(const std::byte* record, const std::byte* block) {
    constexpr int kZero = HasSignedQuants(kType) ? 128 : QuantZero(kType);
    UnpackGroups<kType>(block, quants_);
    LoadScales<kType>(record, block, &scales);
    start_ = _mm256_set1_epi16(-kZero);
    if constexpr (kHalves) {
      start_ = _mm256_mullo_epi16(start_, scales.step_pairs);
      steps_[0] = _mm256_srai_epi32(_mm256_slli_epi32(scales.step_pairs, 16), 16);
      steps_[1] = _mm256_srai_epi32(scales.step_pairs, 16);
    }
    if constexpr (HasSignedQuants(kType)) {
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        quants_[g] = _mm256_xor_si256(quants_[g], _mm256_set1_epi8(-128));
      }
    }
  }

  [[gnu::always_inline]] __m256i Dot(const int8_t* x, __m256i half_sums) const {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i start = kHasZero ? _mm256_madd_epi16(half_sums, start_) : zero;
    const __m256i first = AddHalf<0>(kHalves ? zero : start, x);
    const __m256i second = AddHalf<4>(zero, x);
    if constexpr (!kHalves) return _mm256_add_epi32(first, second);
    return _mm256_add_epi32(_mm256_add_epi32(start, _mm256_mullo_epi32(first, steps_[0])),
                            _mm256_mullo_epi32(second, steps_[1]));
  }

  RowScales scales;

 private:
  static constexpr bool kHalves = FormatOf(kType).halves;
  static constexpr bool kHasZero = HasSignedQuants(kType) || QuantZero(kType) != 0;

  template <int kFirst>
  [[gnu::always_inline]] __m256i AddHalf(__m256i sum, const int8_t* x) const {
#pragma GCC unroll 4
    for (int g = kFirst; g < kFirst + 4; ++g) {
      sum = _mm256_dpbusd_epi32(sum, quants_[g], BroadcastHalf(x + 4 * g));
    }
    return sum;
  }

  __m256i quants_[8];
  __m256i start_;     // int16 pairs: the factors of the half sums
  __m256i steps_[2];  // int32: the factors of the dot products of each half
};

// Multiplies the only row of the tile with panel p. This product waits for the memory of the
// weights, and the hardware prefetches a single ascending stream best.
template <DType kType>
void MultiplyRow(const Tile& tile, int p) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const std::byte* const panel = tile.panels + p * tile.panel_bytes;
  __m256 sum = _mm256_setzero_ps();
  for (int64_t b = 0; b < tile.cols / kQuantBlock; ++b) {
    const std::byte* record = panel + b / kFormat.blocks * kFormat.record_bytes();
    const std::byte* block = record + kFormat.head + b % kFormat.blocks * kFormat.block_bytes();
    const PanelDots<kType> w(record, block);
    const __m256i half_sums = BroadcastHalf(tile.half_sums[0] + 2 * b);
    const __m256 dx = _mm256_set1_ps(tile.scales[0][b]);
    const __m256i dot = w.Dot(tile.quants[0] + b * kQuantBlock, half_sums);
    sum = _mm256_fmadd_ps(_mm256_mul_ps(w.scales.step, dx), _mm256_cvtepi32_ps(dot), sum);
    if constexpr (kFormat.has_min && kFormat.halves) {
      const __m256i weighted = _mm256_madd_epi16(half_sums, w.scales.min_pairs);
      sum = _mm256_fmadd_ps(_mm256_mul_ps(w.scales.min, dx), _mm256_cvtepi32_ps(weighted), sum);
    } else if constexpr (kFormat.has_min) {
      sum = _mm256_fmadd_ps(w.scales.min, _mm256_set1_ps(tile.sums[0][b]), sum);
    }
  }
  _mm256_storeu_ps(tile.out + p * kPanelRows, sum);
}

void MultiplyInt8(const Tile& tile) {
  if (tile.rows > 1) return MultiplyInt8Tile<VnniDots>(tile);
  VisitQuantType(tile.dtype, [&](auto type) {
    for (int p = 0; p < tile.panel_count; ++p) MultiplyRow<type()>(tile, p);
  });
}

}  // namespace

decltype(KernelTable::multiply_int8) VnniMultiplyInt8() { return MultiplyInt8; }

}  // namespace tidepool::kernels

#else

namespace tidepool::kernels {
decltype(KernelTable::multiply_int8) VnniMultiplyInt8() { return nullptr; }
}  // namespace tidepool::kernels

#endif
