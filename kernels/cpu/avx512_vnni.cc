// The kernels for x86-64 with AVX-512 F, BW, VL, DQ and VNNI. They are the same as in avx512.cc,
// except that dot products of bytes are one instruction.
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

}  // namespace

decltype(KernelTable::multiply_int8) VnniMultiplyInt8() { return MultiplyInt8Tile<VnniDots>; }

}  // namespace tidepool::kernels

#else

namespace tidepool::kernels {
decltype(KernelTable::multiply_int8) VnniMultiplyInt8() { return nullptr; }
}  // namespace tidepool::kernels

#endif
