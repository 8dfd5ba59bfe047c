// The kernels for x86-64 with AVX-512 F, BW, VL and DQ. Products and the functions that prepare
// their inputs use sixteen lanes. All other functions use AVX2, which every such CPU has.
#include "kernels/cpu/kernel_table.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

#include <immintrin.h>

#include "kernels/cpu/avx512_float.h"
#include "kernels/cpu/avx512_matmul.h"
#include "kernels/cpu/delta_inner.h"
#include "kernels/math.h"
#include "kernels/ops.h"

namespace tidepool::kernels {
namespace {

// Dot products without VNNI: maddubs adds pairs of products of bytes into int16, as in
// avx2_matmul.cc.
template <DType kType>
class MaddDots {
 public:
  [[gnu::always_inline]] explicit MaddDots(const PairBlock& w) {
    zero_ = _mm512_set1_epi16(QuantZero(kType));
    factors_[0] = factors_[1] = _mm512_set1_epi16(1);
    if constexpr (FormatOf(kType).halves) {
      zero_ = _mm512_mullo_epi16(zero_, w.step_pairs);
      for (int half = 0; half < 2; ++half) {
        const __m512i step = HalfOfPairs(w.step_pairs, half);
        factors_[half] = _mm512_mask_blend_epi16(0xaaaaaaaa, step, _mm512_slli_epi32(step, 16));
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) quants_[g] = w.quants[g];
  }

  [[gnu::always_inline]] __m512i Dot(const int8_t* x, __m512i half_sums) const {
    constexpr int kGroups = GroupsInInt16(kType);
    __m512i dot = _mm512_setzero_si512();
    if constexpr (QuantZero(kType) != 0) {
      dot = _mm512_sub_epi32(dot, _mm512_madd_epi16(half_sums, zero_));
    }
#pragma GCC unroll 8
    for (int first = 0; first < 8; first += kGroups) {
      __m512i pairs = Products(first, x);
#pragma GCC unroll 8
      for (int g = first + 1; g < first + kGroups; ++g) {
        pairs = _mm512_add_epi16(pairs, Products(g, x));
      }
      dot = _mm512_add_epi32(dot, _mm512_madd_epi16(pairs, factors_[first / 4]));
    }
    return dot;
  }

 private:
  [[gnu::always_inline]] __m512i Products(int g, const int8_t* x) const {
    const __m512i four = BroadcastLane(x + 4 * g);
    if constexpr (HasSignedQuants(kType)) {
      const __m512i zero = _mm512_setzero_si512();
      const __m512i signed_four =
          _mm512_mask_sub_epi8(four, _mm512_movepi8_mask(quants_[g]), zero, four);
      return _mm512_maddubs_epi16(_mm512_abs_epi8(quants_[g]), signed_four);
    } else {
      return _mm512_maddubs_epi16(quants_[g], four);
    }
  }

  __m512i quants_[8];
  __m512i zero_;        // int16 pairs: the factors of the half sums
  __m512i factors_[2];  // int16: the factors of the products of each half
};

// Computes math.h's Exp in each lane with the same operations. The early returns of that function
// are masks at the end.
__m512 Exp(__m512 x) {
  const __m512 shift = _mm512_set1_ps(kRoundingShift);
  const __m512 low = _mm512_set1_ps(kExpMin);
  const __m512 high = _mm512_set1_ps(kExpMax);
  const __m512 clamped = _mm512_max_ps(_mm512_min_ps(x, high), low);
  const __m512 scaled = _mm512_mul_ps(clamped, _mm512_set1_ps(kExpLog2E));
  const __m512 n = _mm512_sub_ps(_mm512_add_ps(scaled, shift), shift);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kExpLn2High), clamped);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kExpLn2Low), r);
  __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(kExpC5), r, _mm512_set1_ps(kExpC4));
  for (const float c : {kExpC3, kExpC2, kExpC1, kExpC0}) {
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  }
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  // p is between 1/2 and 2, so scaling it by a power of two is exact.
  __m512 result = _mm512_scalef_ps(p, n);
  result = _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, low, _CMP_LT_OQ), _mm512_setzero_ps());
  result = _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, high, _CMP_GT_OQ),
                              _mm512_set1_ps(__builtin_inff()));
  return _mm512_mask_mov_ps(result, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

void SwiGlu(const float* gate, const float* up, int64_t n, const Glu&, float* out) {
  constexpr int kLanes = 16;
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < n; i += kLanes) {
    const __mmask16 lanes = n - i < kLanes ? (1u << (n - i)) - 1 : 0xffff;
    const __m512 g = _mm512_maskz_loadu_ps(lanes, gate + i);
    const __m512 minus_g = _mm512_xor_ps(g, _mm512_set1_ps(-0.0f));
    const __m512 silu = _mm512_div_ps(g, _mm512_add_ps(one, Exp(minus_g)));
    const __m512 product = _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(lanes, up + i));
    _mm512_mask_storeu_ps(out + i, lanes, product);
  }
}

void Quantize(const float* x, int64_t blocks, const Int8Blocks& out) {
  auto [quants, scales, sums, half_sums] = out;
  const __m512i no_sign = _mm512_set1_epi32(0x7fffffff);
  for (int64_t b = 0; b < blocks; ++b, x += kQuantBlock, quants += kQuantBlock) {
    const __m512 first = _mm512_loadu_ps(x);
    const __m512 second = _mm512_loadu_ps(x + kHalfBlock);
    const __m512i magnitudes =
        _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(first), no_sign),
                         _mm512_and_si512(_mm512_castps_si512(second), no_sign));
    const int32_t amax_bits = _mm512_reduce_max_epi32(magnitudes);
    const float amax = FloatFromBits(amax_bits);
    const bool finite = amax_bits < 0x7f800000;
    __m256i q = _mm256_setzero_si256();
    if (!finite || amax < kTinyBlock) {
      scales[b] = finite ? 0.0f : __builtin_nanf("");
    } else {
      const __m512 inverse = _mm512_set1_ps(127.0f / amax);
      const __m512i low = _mm512_cvtps_epi32(_mm512_mul_ps(first, inverse));
      const __m512i high = _mm512_cvtps_epi32(_mm512_mul_ps(second, inverse));
      q = _mm256_inserti128_si256(_mm256_castsi128_si256(_mm512_cvtepi32_epi8(low)),
                                  _mm512_cvtepi32_epi8(high), 1);
      scales[b] = amax / 127.0f;
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(quants), q);
    // sad adds eight unsigned bytes, so 128 is added to each quant.
    const __m256i biased = _mm256_xor_si256(q, _mm256_set1_epi8(-128));
    const __m256i eights = _mm256_sad_epu8(biased, _mm256_setzero_si256());
    const __m256i halves = _mm256_add_epi64(eights, _mm256_unpackhi_epi64(eights, eights));
    const int low = _mm_cvtsi128_si32(_mm256_castsi256_si128(halves)) - 128 * kHalfBlock;
    const int high = _mm_cvtsi128_si32(_mm256_extracti128_si256(halves, 1)) - 128 * kHalfBlock;
    half_sums[2 * b] = static_cast<int16_t>(low);
    half_sums[2 * b + 1] = static_cast<int16_t>(high);
    sums[b] = scales[b] * static_cast<float>(low + high);
  }
}

// A vector with the members that delta_inner.h uses.
struct Avx512Lanes {
  using F = __m512;
  static constexpr int kLanes = 16;

  static F Load(const float* x) { return _mm512_loadu_ps(x); }
  static void Store(float* out, F v) { _mm512_storeu_ps(out, v); }
  static F Set(float x) { return _mm512_set1_ps(x); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Negate(F a) { return _mm512_xor_ps(a, _mm512_set1_ps(-0.0f)); }
};

}  // namespace

const Avx512Forms* OwnAvx512Forms() {
  static constexpr Avx512Forms forms = {.multiply_int8 = MultiplyInt8Tile<MaddDots>,
                                        .multiply_float = MultiplyFloatTile,
                                        .quantize = Quantize,
                                        .swiglu = SwiGlu,
                                        .advance_delta = DeltaInner<Avx512Lanes>::Advance<2>,
                                        .delta_tiles = 2};
  return &forms;
}

}  // namespace tidepool::kernels

#else

namespace tidepool::kernels {
const Avx512Forms* OwnAvx512Forms() { return nullptr; }
}  // namespace tidepool::kernels

#endif
