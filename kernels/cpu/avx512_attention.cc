// The loops of attention with sixteen lanes, for x86-64 with AVX-512 F, BW, VL and DQ. Only files
// like this one and avx512.cc are compiled for these.
#include "kernels/cpu/attention_kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

#include <immintrin.h>

#include "kernels/cpu/attention_inner.h"
#include "kernels/math.h"

namespace tidepool::kernels {
namespace {

struct Avx512Vector {
  using F = __m512;
  static constexpr int kLanes = 16;

  static F Load(const float* x) { return _mm512_loadu_ps(x); }
  static void Store(float* out, F v) { _mm512_storeu_ps(out, v); }
  static F Set(float x) { return _mm512_set1_ps(x); }
  static F Sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm512_max_ps(a, b); }
  static float MaxLanes(F a) { return _mm512_reduce_max_ps(a); }
  static F LoadF16(const uint16_t* x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  static F LoadBf16(const uint16_t* x) {
    const __m256i halves = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
  static F LoadI8(const int8_t* x) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
  static __m256 AddTo(__m256 sums, F x) {
    sums = _mm256_add_ps(sums, _mm512_castps512_ps256(x));
    return _mm256_add_ps(sums, _mm512_extractf32x8_ps(x, 1));
  }
  static F ExpBelowZero(F x) {
    const F low = Set(kExpMin);
    const F shift = Set(kRoundingShift);
    const F clamped = _mm512_max_ps(low, x);  // a NaN in x is kept
    const F n = Sub(_mm512_add_ps(Mul(clamped, Set(kExpLog2E)), shift), shift);
    const F r =
        _mm512_fnmadd_ps(n, Set(kExpLn2Low), _mm512_fnmadd_ps(n, Set(kExpLn2High), clamped));
    F p = Fma(Set(kExpC5), r, Set(kExpC4));
    p = Fma(p, r, Set(kExpC3));
    p = Fma(p, r, Set(kExpC2));
    p = Fma(p, r, Set(kExpC1));
    p = Fma(p, r, Set(kExpC0));
    p = _mm512_add_ps(Fma(p, Mul(r, r), r), Set(1.0f));
    // p is between 1/2 and 2, so scaling it by a power of two is exact.
    const __mmask16 kept = _mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(kept, p, n);
  }
};

// A vector of 8 floats, with the members that attention_inner.h uses.
struct Avx512Half {
  using F = __m256;

  static F Load(const float* x) { return _mm256_loadu_ps(x); }
  static void Store(float* out, F v) { _mm256_storeu_ps(out, v); }
  static F Set(float x) { return _mm256_set1_ps(x); }
  static float SumLanes(F a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static F ExpBelowZero(F x) {
    return _mm512_castps512_ps256(Avx512Vector::ExpBelowZero(_mm512_castps256_ps512(x)));
  }
  static void StoreF16(uint16_t* out, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void StoreBf16(uint16_t* out, F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __mmask8 nan = _mm256_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    rounded = _mm256_mask_or_epi32(rounded, nan, bits, _mm256_set1_epi32(0x400000));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtepi32_epi16(_mm256_srli_epi32(rounded, 16)));
  }
};

}  // namespace

const AttentionKernels* Avx512Attention() {
  static constexpr AttentionKernels kernels =
      AttentionInner<Avx512Half, Avx512Vector>::Kernels<kMaxAttendVectors>();
  return &kernels;
}

}  // namespace tidepool::kernels

#else

namespace tidepool::kernels {
const AttentionKernels* Avx512Attention() { return nullptr; }
}  // namespace tidepool::kernels

#endif
