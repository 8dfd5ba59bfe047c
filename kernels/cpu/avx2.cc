// The kernels for x86-64 with AVX2, FMA and F16C. This file is compiled for these. It only includes
// plain declarations and its own instances of inner.h, so its code never runs on other CPUs.
#include "kernels/cpu/kernel_table.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include "kernels/cpu/avx2_block.h"
#include "kernels/cpu/avx2_matmul.h"
#include "kernels/cpu/inner.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

// Large because a vector type has one member per operation (inner.h).
struct Avx2Vector {
  using F = __m256;

  static F Load(const float* x) { return _mm256_loadu_ps(x); }
  static void Store(float* out, F v) { _mm256_storeu_ps(out, v); }
  static F Set(float x) { return _mm256_set1_ps(x); }
  static F Add(F a, F b) { return _mm256_add_ps(a, b); }
  static F Sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F Mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F Div(F a, F b) { return _mm256_div_ps(a, b); }
  static F Fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  static F Max(F a, F b) { return _mm256_max_ps(a, b); }
  static F Min(F a, F b) { return _mm256_min_ps(a, b); }
  static F Abs(F a) { return _mm256_andnot_ps(Set(-0.0f), a); }
  static F CopySign(F magnitude, F sign) {
    return _mm256_or_ps(Abs(magnitude), _mm256_and_ps(Set(-0.0f), sign));
  }
  static F SelectLess(F a, F b, F yes, F no) {
    return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
  }
  static float MaxLanes(F a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
  }
  static float SumLanes(F a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static F Negate(F a) { return _mm256_xor_ps(a, _mm256_set1_ps(-0.0f)); }
  static F LoadF16(const uint16_t* x) { return LoadHalves(x); }
  static F LoadBf16(const uint16_t* x) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
  }
  static void StoreF16(uint16_t* out, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  static void StoreBf16(uint16_t* out, F v) {
    const __m256i bits = _mm256_castps_si256(v);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i top = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(top, top), 0x08);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(packed));
  }

  // Computes math.h's Exp in each lane with the same operations. The early returns of that function
  // are selections at the end.
  static F Exp(F x) {
    const F low = Set(kExpMin);
    const F high = Set(kExpMax);
    const F shift = Set(kRoundingShift);
    const F clamped = _mm256_max_ps(_mm256_min_ps(x, high), low);
    const F n = Sub(Add(Mul(clamped, Set(kExpLog2E)), shift), shift);
    const F r =
        _mm256_fnmadd_ps(n, Set(kExpLn2Low), _mm256_fnmadd_ps(n, Set(kExpLn2High), clamped));
    F p = Fma(Set(kExpC5), r, Set(kExpC4));
    p = Fma(p, r, Set(kExpC3));
    p = Fma(p, r, Set(kExpC2));
    p = Fma(p, r, Set(kExpC1));
    p = Fma(p, r, Set(kExpC0));
    p = Add(Fma(p, Mul(r, r), r), Set(1.0f));
    const __m256i exponent = _mm256_cvtps_epi32(n);
    const __m256i half = _mm256_srai_epi32(exponent, 1);
    const __m256i rest = _mm256_sub_epi32(exponent, half);
    F result = Mul(Mul(p, PowerOfTwo(half)), PowerOfTwo(rest));
    result = _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), result);
    result = _mm256_blendv_ps(result, Set(__builtin_inff()), _mm256_cmp_ps(x, high, _CMP_GT_OQ));
    return _mm256_blendv_ps(result, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  }
  static F PowerOfTwo(__m256i n) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
  }

  // Computes Exp for x <= 0 or NaN. 2^n and its product with p are then normal numbers.
  static F ExpBelowZero(F x) {
    const F low = Set(kExpMin);
    const F shift = Set(kRoundingShift);
    const F clamped = _mm256_max_ps(low, x);  // a NaN in x is kept
    const F shifted = Add(Mul(clamped, Set(kExpLog2E)), shift);
    const F n = Sub(shifted, shift);
    const F r =
        _mm256_fnmadd_ps(n, Set(kExpLn2Low), _mm256_fnmadd_ps(n, Set(kExpLn2High), clamped));
    F p = Fma(Set(kExpC5), r, Set(kExpC4));
    p = Fma(p, r, Set(kExpC3));
    p = Fma(p, r, Set(kExpC2));
    p = Fma(p, r, Set(kExpC1));
    p = Fma(p, r, Set(kExpC0));
    p = Add(Fma(p, Mul(r, r), r), Set(1.0f));
    // The low bits of `shifted` are n. PowerOfTwo shifts all other bits out.
    const F power = PowerOfTwo(_mm256_castps_si256(shifted));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, low, _CMP_LT_OQ), Mul(p, power));
  }

  static F LoadI8(const int8_t* x) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(x));
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
  }

  // Rotates four pairs (a, b): even lanes become a cos - b sin, and odd lanes become b cos + a sin.
  static void RotatePairs(float* x, const float* cos, const float* sin) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const F c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cos)), twice);
    const F s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sin)), twice);
    const F v = Load(x);
    const F swapped = _mm256_permute_ps(v, 0xb1);
    Store(x, _mm256_fmaddsub_ps(v, c, Mul(swapped, s)));
  }

  // Dequantises one block of a quantised panel to [32][8] floats.
  static void UnpackQuants(DType dtype, const std::byte* panel, int64_t b, float* out) {
    VisitQuantType(dtype, [&](auto type) { UnpackBlock<type()>(panel, b, out); });
  }
  template <DType kType>
  static void UnpackBlock(const std::byte* panel, int64_t b, float* out) {
    constexpr QuantFormat kFormat = FormatOf(kType);
    const std::byte* record = panel + b / kFormat.blocks * kFormat.record_bytes();
    const std::byte* block = record + kFormat.head + b % kFormat.blocks * kFormat.block_bytes();
    RowScales scales;
    LoadScales<kType>(record, block, &scales);
    __m256i groups[8];
    UnpackGroups<kType>(block, groups);
    for (int g = 0; g < 8; ++g) {
      F step = scales.step;
      F min;
      if constexpr (kFormat.halves) step = Mul(step, HalfOfPairs(scales.step_pairs, g / 4));
      if constexpr (kFormat.has_min) min = scales.min;
      if constexpr (kFormat.has_min && kFormat.halves) {
        min = Mul(min, HalfOfPairs(scales.min_pairs, g / 4));
      }
      const __m256i quants = _mm256_sub_epi8(groups[g], _mm256_set1_epi8(QuantZero(kType)));
      for (int j = 0; j < 4; ++j) {  // byte j of each lane is a column
        const __m256i byte =
            _mm256_srai_epi32(_mm256_sll_epi32(quants, _mm_cvtsi32_si128(24 - 8 * j)), 24);
        F value = Mul(step, _mm256_cvtepi32_ps(byte));
        if constexpr (kFormat.has_min) value = Add(value, min);
        Store(out + (4 * g + j) * kLanes, value);
      }
    }
  }
  // Returns the int16 of one half of the block in each lane, as floats.
  static F HalfOfPairs(__m256i pairs, int half) {
    const __m256i top = half == 0 ? _mm256_slli_epi32(pairs, 16) : pairs;
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 16));
  }
};

static inline uint32_t LargestLane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

// Returns the sums of the 16 int8 of each half. Every 32-bit lane of a half gets the sum of that
// half.
static inline __m256i SumsOfHalves(__m256i bytes) {
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes);
  __m256i s = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  s = _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0x4e));
  return _mm256_add_epi32(s, _mm256_shuffle_epi32(s, 0xb1));
}

void Quantize(const float* x, int64_t blocks, const Int8Blocks& out) {
  auto [quants, scales, sums, half_sums] = out;
  const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
  // packs works within 128-bit halves. This permutation restores the order of the 32-bit groups.
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (int64_t b = 0; b < blocks; ++b, x += kQuantBlock, quants += kQuantBlock) {
    __m256 v[4];
    __m256i amax = _mm256_setzero_si256();
    for (int i = 0; i < 4; ++i) {
      v[i] = _mm256_loadu_ps(x + i * kLanes);
      amax = _mm256_max_epi32(amax, _mm256_and_si256(_mm256_castps_si256(v[i]), no_sign));
    }
    const uint32_t amax_bits = LargestLane(amax);
    const float largest = FloatFromBits(amax_bits);
    const bool finite = amax_bits < 0x7f800000;
    __m256i packed = _mm256_setzero_si256();
    if (!finite || largest < kTinyBlock) {
      scales[b] = finite ? 0.0f : __builtin_nanf("");
    } else {
      const __m256 inverse = _mm256_set1_ps(127.0f / largest);
      __m256i q[4];
      for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
      packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
      packed = _mm256_permutevar8x32_epi32(packed, order);
      scales[b] = largest / 127.0f;
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(quants), packed);
    const __m256i halves = SumsOfHalves(packed);
    const int first = _mm_cvtsi128_si32(_mm256_castsi256_si128(halves));
    const int second = _mm_cvtsi128_si32(_mm256_extracti128_si256(halves, 1));
    half_sums[2 * b] = static_cast<int16_t>(first);
    half_sums[2 * b + 1] = static_cast<int16_t>(second);
    sums[b] = scales[b] * static_cast<float>(first + second);
  }
}

}  // namespace

const KernelTable* Avx2Kernels() {
  static constexpr KernelTable table = Inner<Avx2Vector>::Table("avx2", Avx2MultiplyInt8, Quantize);
  return &table;
}

}  // namespace tidepool::kernels

#else

namespace tidepool::kernels {
const KernelTable* Avx2Kernels() { return nullptr; }
}  // namespace tidepool::kernels

#endif
