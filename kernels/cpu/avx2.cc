// The form for x86-64 with AVX2, FMA and F16C. The build compiles this file alone for them: it
// includes nothing but plain declarations and its own instances of inner.h, so none of its code
// runs elsewhere.
#include "kernels/cpu/kernel_table.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include "kernels/cpu/inner.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

static inline __m256i LoadBytes(const void* data) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(data));
}

static inline __m256 LoadHalves(const void* data) {
  return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(data)));
}

// Four int8 of x in every lane.
static inline __m256i BroadcastFour(const int8_t* x) {
  int32_t four;
  __builtin_memcpy(&four, x, sizeof(four));
  return _mm256_set1_epi32(four);
}

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

  // math.h's Exp, lane by lane: the same operations, its early returns as selections at the end.
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

  // Four pairs (a, b): even lanes a cos - b sin, odd lanes b cos + a sin.
  static void RotatePairs(float* x, const float* cos, const float* sin) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const F c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cos)), twice);
    const F s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sin)), twice);
    const F v = Load(x);
    const F swapped = _mm256_permute_ps(v, 0xb1);
    Store(x, _mm256_fmaddsub_ps(v, c, Mul(swapped, s)));
  }

  // Lane r of the result: byte j of lane r, as a float, for the four columns of a group.
  static void StoreGroup(__m256i group, F d, const F* m, float* out) {
    for (int j = 0; j < 4; ++j) {
      const __m256i byte =
          _mm256_srai_epi32(_mm256_sll_epi32(group, _mm_cvtsi32_si128(24 - 8 * j)), 24);
      const F scaled = Mul(d, _mm256_cvtepi32_ps(byte));
      Store(out + j * kLanes, m != nullptr ? Add(scaled, *m) : scaled);
    }
  }

  static void UnpackQuants(DType dtype, const std::byte* record, float* out) {
    const F d = LoadHalves(record);
    if (dtype == DType::kQ8_0) {
      for (int g = 0; g < 8; ++g) {
        StoreGroup(LoadBytes(record + kQ8QuantOffset + 32 * g), d, nullptr, out + 32 * g);
      }
      return;
    }
    const bool has_min = dtype == DType::kQ4_1;
    const F m = has_min ? LoadHalves(record + kPanelMinOffset) : Set(0.0f);
    const std::byte* quants = record + (has_min ? kQ4_1QuantOffset : kQ4_0QuantOffset);
    const __m256i mask = _mm256_set1_epi8(15);
    const __m256i offset = _mm256_set1_epi8(has_min ? 0 : 8);
    for (int g = 0; g < 4; ++g) {
      const __m256i pairs = LoadBytes(quants + 32 * g);
      const __m256i low = _mm256_and_si256(pairs, mask);
      const __m256i high = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), mask);
      const F* min = has_min ? &m : nullptr;
      StoreGroup(_mm256_sub_epi8(low, offset), d, min, out + 32 * g);
      StoreGroup(_mm256_sub_epi8(high, offset), d, min, out + 32 * (g + 4));
    }
  }
};

// Sums of adjacent int16 pairs: one int32 per lane.
static inline __m256i SumPairs(__m256i sums) {
  return _mm256_madd_epi16(sums, _mm256_set1_epi16(1));
}

// The dots of one block of a nibble type: R rows of x with P panels, into int16 pairs. No overflow:
// each pair adds 16 products of at most 15 * 127, below 2^15.
template <int R, int P>
static inline void NibbleDots(const int8_t* const* x, const std::byte* const* quants, int64_t k,
                              __m256i (&dots)[R][P]) {
  const __m256i mask = _mm256_set1_epi8(15);
  for (int g = 0; g < 4; ++g) {
    __m256i low[P];
    __m256i high[P];
    for (int p = 0; p < P; ++p) {
      const __m256i pairs = LoadBytes(quants[p] + 32 * g);
      low[p] = _mm256_and_si256(pairs, mask);
      high[p] = _mm256_and_si256(_mm256_srli_epi16(pairs, 4), mask);
    }
    for (int r = 0; r < R; ++r) {
      const __m256i first = BroadcastFour(x[r] + k + 4 * g);
      const __m256i second = BroadcastFour(x[r] + k + 16 + 4 * g);
      for (int p = 0; p < P; ++p) {
        const __m256i a = _mm256_maddubs_epi16(low[p], first);
        const __m256i b = _mm256_maddubs_epi16(high[p], second);
        dots[r][p] =
            g == 0 ? _mm256_add_epi16(a, b) : _mm256_add_epi16(dots[r][p], _mm256_add_epi16(a, b));
      }
    }
  }
}

// Q4_0 and Q4_1: R rows times P panels from panel `first` on.
template <int R, int P, DType kType>
static inline void NibbleTile(const Tile& tile, int row, int first) {
  constexpr bool kHasMin = kType == DType::kQ4_1;
  constexpr int kRecord = kHasMin ? kQ4_1RecordBytes : kQ4_0RecordBytes;
  constexpr int kOffset = kHasMin ? kQ4_1QuantOffset : kQ4_0QuantOffset;
  const std::byte* base = tile.panels + first * tile.panel_bytes;
  __m256 sums[R][P];
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) sums[r][p] = _mm256_setzero_ps();
  }
  for (int64_t b = 0; b < tile.cols / kQuantBlock; ++b) {
    const std::byte* quants[P];
    for (int p = 0; p < P; ++p) quants[p] = base + p * tile.panel_bytes + b * kRecord + kOffset;
    __m256i dots[R][P] = {};
    NibbleDots<R, P>(tile.quants + row, quants, b * kQuantBlock, dots);
    for (int p = 0; p < P; ++p) {
      const __m256 d = LoadHalves(quants[p] - kOffset);
      for (int r = 0; r < R; ++r) {
        __m256i dot = SumPairs(dots[r][p]);
        if (!kHasMin) {
          dot = _mm256_sub_epi32(dot, _mm256_set1_epi32(8 * tile.quant_sums[row + r][b]));
        }
        const __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(tile.scales[row + r][b]));
        sums[r][p] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dot), sums[r][p]);
        if (kHasMin) {
          const __m256 m = LoadHalves(quants[p] - kOffset + kPanelMinOffset);
          sums[r][p] = _mm256_fmadd_ps(m, _mm256_set1_ps(tile.sums[row + r][b]), sums[r][p]);
        }
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      _mm256_storeu_ps(tile.out + (row + r) * kTileCols + (first + p) * kLanes, sums[r][p]);
    }
  }
}

// Q8_0. maddubs wants one unsigned side: |w| with x carrying w's sign. |-128| is 128 unsigned, and
// a pair adds at most 2 * 128 * 127, below 2^15.
template <int R, int P>
static inline void ByteTile(const Tile& tile, int row, int first) {
  const std::byte* base = tile.panels + first * tile.panel_bytes;
  __m256 sums[R][P];
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) sums[r][p] = _mm256_setzero_ps();
  }
  for (int64_t b = 0; b < tile.cols / kQuantBlock; ++b) {
    const std::byte* record = base + b * kQ8_0RecordBytes;
    __m256i dots[R][P];
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) dots[r][p] = _mm256_setzero_si256();
    }
    for (int g = 0; g < 8; ++g) {
      for (int p = 0; p < P; ++p) {
        const __m256i w = LoadBytes(record + p * tile.panel_bytes + kQ8QuantOffset + 32 * g);
        const __m256i magnitude = _mm256_abs_epi8(w);
        for (int r = 0; r < R; ++r) {
          const __m256i x = BroadcastFour(tile.quants[row + r] + b * kQuantBlock + 4 * g);
          const __m256i products = _mm256_maddubs_epi16(magnitude, _mm256_sign_epi8(x, w));
          dots[r][p] = _mm256_add_epi32(dots[r][p], SumPairs(products));
        }
      }
    }
    for (int p = 0; p < P; ++p) {
      const __m256 d = LoadHalves(record + p * tile.panel_bytes);
      for (int r = 0; r < R; ++r) {
        const __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(tile.scales[row + r][b]));
        sums[r][p] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots[r][p]), sums[r][p]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) {
      _mm256_storeu_ps(tile.out + (row + r) * kTileCols + (first + p) * kLanes, sums[r][p]);
    }
  }
}

template <int R, int P>
static inline void TypedTile(const Tile& tile, int row, int first) {
  switch (tile.dtype) {
    case DType::kQ4_0:
      return NibbleTile<R, P, DType::kQ4_0>(tile, row, first);
    case DType::kQ4_1:
      return NibbleTile<R, P, DType::kQ4_1>(tile, row, first);
    default:
      return ByteTile<R, P>(tile, row, first);
  }
}

// R rows from `row` on with all panels, P at a time.
template <int R, int P>
static inline void Panels(const Tile& tile, int row) {
  int p = 0;
  for (; p + P <= tile.panel_count; p += P) TypedTile<R, P>(tile, row, p);
  if constexpr (P > 1) {
    for (; p < tile.panel_count; ++p) TypedTile<R, 1>(tile, row, p);
  }
}

// R rows from `row` on, or as many as there are.
template <int R, int P>
static inline void Rows(const Tile& tile, int row) {
  if (tile.rows - row >= R) return Panels<R, P>(tile, row);
  if constexpr (R > 1) Rows<R - 1, P>(tile, row);
}

// The first rows wait for the weights' memory: they take one panel after the other, one stream of
// ascending addresses, which the hardware prefetches best. The rows after them find the weights in
// cache and wait for loads of x: pairs of panels share those.
void MultiplyInt8(const Tile& tile) {
  constexpr int kRows = 4;
  Rows<kRows, 1>(tile, 0);
  for (int row = kRows; row < tile.rows; row += kRows) Rows<kRows, 2>(tile, row);
}

static inline uint32_t LargestLane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

static inline int32_t SumOfLanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

void Quantize(const float* x, int64_t blocks, int8_t* quants, float* scales, float* sums,
              int32_t* quant_sums) {
  const __m256i no_sign = _mm256_set1_epi32(0x7fffffff);
  // packs works within 128-bit halves; this puts the 32-bit groups back in order.
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
    int32_t sum = 0;
    __m256i packed = _mm256_setzero_si256();
    if (!finite || largest < kTinyBlock) {
      scales[b] = finite ? 0.0f : __builtin_nanf("");
    } else {
      const __m256 inverse = _mm256_set1_ps(127.0f / largest);
      __m256i q[4];
      for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
      sum =
          SumOfLanes(_mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3])));
      packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
      packed = _mm256_permutevar8x32_epi32(packed, order);
      scales[b] = largest / 127.0f;
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(quants), packed);
    quant_sums[b] = sum;
    sums[b] = scales[b] * static_cast<float>(sum);
  }
}

}  // namespace

const KernelTable* Avx2Kernels() {
  static const KernelTable table = Inner<Avx2Vector>::Table("avx2", MultiplyInt8, Quantize);
  return &table;
}

}  // namespace tidepool::kernels

#else

namespace tidepool::kernels {
const KernelTable* Avx2Kernels() { return nullptr; }
}  // namespace tidepool::kernels

#endif
