// Integer products for x86-64 with AVX2. They compute the chains of ops.h. This file is compiled
// like avx2.cc.
//
// The instruction maddubs multiplies unsigned weights by signed activations, and adds pairs of
// products into int16. If codes are at most c, a pair adds at most 2 * 127 * c. So the sums of
// several groups of four columns (kGroups) fit into an int16 before madd widens them: 8 groups for
// nibbles (c = 15), and 2 for the six bits of Q6_K. If a type has one scale per half, madd also
// multiplies by the scale. The zero point is subtracted at the end, with the help of the
// activation's half sums.
#include "kernels/cpu/avx2_matmul.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include <immintrin.h>

#include <type_traits>
#include <utility>

#include "kernels/cpu/avx2_block.h"

namespace tidepool::kernels {
namespace {

// Copies four bytes to every lane: four int8 of x, or the two half sums of a block.
__m256i BroadcastLane(const void* data) {
  int32_t lane;
  __builtin_memcpy(&lane, data, sizeof(lane));
  return _mm256_set1_epi32(lane);
}

// Calls body(0), body(1), ... with compile-time constants. Arrays of vectors are kept in registers
// only if the loops over them are unrolled, and the compiler only unrolls small loops.
template <int N, typename Body>
[[gnu::always_inline]] inline void Repeat(Body body) {
  [&]<int... kI>(std::integer_sequence<int, kI...>) [[gnu::always_inline]] {
    (body(std::integral_constant<int, kI>()), ...);
  }
  (std::make_integer_sequence<int, N>());
}

// Forces the compiler to compute `v` at this point. Otherwise it would compute all products of a
// tile first, and spill most registers.
[[gnu::always_inline]] inline __m256i Pin(__m256i v) {
  asm("" : "+x"(v));
  return v;
}

// One unpacked block of one panel.
template <DType kType>
struct UnpackedBlock {
  static constexpr QuantFormat kFormat = FormatOf(kType);

  [[gnu::always_inline]] UnpackedBlock(const std::byte* panel, int64_t b) {
    const std::byte* record = panel + b / kFormat.blocks * kFormat.record_bytes();
    const std::byte* block = record + kFormat.head + b % kFormat.blocks * kFormat.block_bytes();
    UnpackGroups<kType>(block, quants);
    LoadScales<kType>(record, block, &scales);
    if constexpr (kFormat.halves) {
      // Copies bytes 0 and 1 of each lane to both int16 of the lane; then the same for bytes 2 and
      // 3.
      const __m256i first = _mm256_set_epi8(13, 12, 13, 12, 9, 8, 9, 8, 5, 4, 5, 4, 1, 0, 1, 0, 13,
                                            12, 13, 12, 9, 8, 9, 8, 5, 4, 5, 4, 1, 0, 1, 0);
      const __m256i second = _mm256_add_epi8(first, _mm256_set1_epi8(2));
      factors[0] = _mm256_shuffle_epi8(scales.step_pairs, first);
      factors[1] = _mm256_shuffle_epi8(scales.step_pairs, second);
      zero = _mm256_mullo_epi16(scales.step_pairs, _mm256_set1_epi16(QuantZero(kType)));
    } else {
      factors[0] = factors[1] = _mm256_set1_epi16(1);
      zero = _mm256_set1_epi16(QuantZero(kType));
    }
  }

  __m256i quants[8];
  RowScales scales;
  __m256i factors[2];  // for each half: the int16 factor of its products
  __m256i zero;        // pairs (half 0, half 1) of the zero point times the factor
};

// Sets dots[r][p] to the integers of the products in ops.h, before the zero point is subtracted.
template <DType kType, int R, int P>
[[gnu::always_inline]] inline void BlockDots(const int8_t* const* x, int64_t k,
                                             const UnpackedBlock<kType> (&w)[P],
                                             __m256i (&dots)[R][P]) {
  constexpr int kGroups = GroupsInInt16(kType);
  __m256i pairs[R][P];
  Repeat<8 / kGroups>([&](auto step) [[gnu::always_inline]] {
    constexpr int kFirst = step() * kGroups;
    Repeat<kGroups>([&](auto i) [[gnu::always_inline]] {
      constexpr int kGroup = kFirst + i();
      Repeat<R>([&](auto r) [[gnu::always_inline]] {
        const __m256i four = BroadcastLane(x[r()] + k + 4 * kGroup);
        Repeat<P>([&](auto p) [[gnu::always_inline]] {
          const __m256i q = w[p()].quants[kGroup];
          // One operand must be unsigned. For signed weights w, |w| is the unsigned operand, and x
          // gets the sign of w. |-128| is 128 as an unsigned number. A pair adds at most 2 * 128 *
          // 127, which is below 2^15.
          const __m256i sums =
              HasSignedQuants(kType)
                  ? _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(four, q))
                  : _mm256_maddubs_epi16(q, four);
          pairs[r()][p()] =
              kGroups == 1 ? sums : Pin(i() == 0 ? sums : _mm256_add_epi16(pairs[r()][p()], sums));
        });
      });
    });
    Repeat<R>([&](auto r) [[gnu::always_inline]] {
      Repeat<P>([&](auto p) [[gnu::always_inline]] {
        const __m256i sums = _mm256_madd_epi16(pairs[r()][p()], w[p()].factors[kFirst / 4]);
        dots[r()][p()] = Pin(kFirst == 0 ? sums : _mm256_add_epi32(dots[r()][p()], sums));
      });
    });
  });
}

// Multiplies R rows, starting at `row`, with block b of the P panels of `w`, and adds the products
// to `sums`.
template <DType kType, int R, int P>
[[gnu::always_inline]] inline void AddBlock(const Tile& tile, int row, int64_t b,
                                            const UnpackedBlock<kType> (&w)[P],
                                            __m256 (&sums)[R][P]) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  __m256i dots[R][P];
  BlockDots<kType, R, P>(tile.quants + row, b * kQuantBlock, w, dots);
  Repeat<R>([&](auto r) [[gnu::always_inline]] {
    const __m256i x_sums = BroadcastLane(tile.half_sums[row + r()] + 2 * b);
    const __m256 dx = _mm256_set1_ps(tile.scales[row + r()][b]);
    Repeat<P>([&](auto p) [[gnu::always_inline]] {
      const RowScales& scales = w[p()].scales;
      __m256i dot = dots[r()][p()];
      __m256& sum = sums[r()][p()];
      if constexpr (QuantZero(kType) != 0) {
        dot = _mm256_sub_epi32(dot, _mm256_madd_epi16(x_sums, w[p()].zero));
      }
      sum = _mm256_fmadd_ps(_mm256_mul_ps(scales.step, dx), _mm256_cvtepi32_ps(dot), sum);
      if constexpr (kFormat.has_min && kFormat.halves) {
        const __m256i weighted = _mm256_madd_epi16(x_sums, scales.min_pairs);
        sum = _mm256_fmadd_ps(_mm256_mul_ps(scales.min, dx), _mm256_cvtepi32_ps(weighted), sum);
      } else if constexpr (kFormat.has_min) {
        sum = _mm256_fmadd_ps(scales.min, _mm256_set1_ps(tile.sums[row + r()][b]), sum);
      }
    });
  });
}

// Multiplies R rows, starting at `row`, with panel p. The sums stay in registers. Products of few
// rows wait for the memory of the weights, and the hardware prefetches a single ascending stream
// best.
template <DType kType, int R>
void MultiplyFewRows(const Tile& tile, int row, int p) {
  __m256 sums[R][1];
  for (int r = 0; r < R; ++r) sums[r][0] = _mm256_setzero_ps();
  const std::byte* panel = tile.panels + p * tile.panel_bytes;
  for (int64_t b = 0; b < tile.cols / kQuantBlock; ++b) {
    const UnpackedBlock<kType> w[1] = {{panel, b}};
    AddBlock<kType, R, 1>(tile, row, b, w, sums);
  }
  for (int r = 0; r < R; ++r) {
    _mm256_storeu_ps(tile.out + (row + r) * kTileCols + p * kPanelRows, sums[r][0]);
  }
}

// Multiplies all rows from `row` on with panel p, at most R rows at a time.
template <DType kType, int R>
void MultiplyPanel(const Tile& tile, int row, int p) {
  for (; row + R <= tile.rows; row += R) MultiplyFewRows<kType, R>(tile, row, p);
  if constexpr (R > 1) {
    if (row < tile.rows) MultiplyPanel<kType, R - 1>(tile, row, p);
  }
}

// Like AddBlock, but the sums are in the output of the tile.
template <DType kType, int R, int P>
void AddBlockToOut(const Tile& tile, int row, int first, int64_t b,
                   const UnpackedBlock<kType> (&w)[P]) {
  __m256 sums[R][P];
  float* out = tile.out + row * kTileCols + first * kPanelRows;
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) sums[r][p] = _mm256_loadu_ps(out + r * kTileCols + p * kPanelRows);
  }
  AddBlock<kType, R, P>(tile, row, b, w, sums);
  for (int r = 0; r < R; ++r) {
    for (int p = 0; p < P; ++p) _mm256_storeu_ps(out + r * kTileCols + p * kPanelRows, sums[r][p]);
  }
}

// Multiplies many rows with the two panels that begin at `first`. Each block is unpacked once for
// all rows, and each load of x is used for both panels.
template <DType kType>
void MultiplyManyRows(const Tile& tile, int first) {
  constexpr int kRows = 4;
  for (int r = 0; r < tile.rows; ++r) {
    for (int i = 0; i < 2 * kPanelRows; ++i) tile.out[r * kTileCols + first * kPanelRows + i] = 0;
  }
  const std::byte* panel = tile.panels + first * tile.panel_bytes;
  for (int64_t b = 0; b < tile.cols / kQuantBlock; ++b) {
    const UnpackedBlock<kType> w[2] = {{panel, b}, {panel + tile.panel_bytes, b}};
    int row = 0;
    for (; row + kRows <= tile.rows; row += kRows) {
      AddBlockToOut<kType, kRows, 2>(tile, row, first, b, w);
    }
    for (; row < tile.rows; ++row) AddBlockToOut<kType, 1, 2>(tile, row, first, b, w);
  }
}

}  // namespace

void Avx2MultiplyInt8(const Tile& tile) {
  constexpr int kFewRows = 4;
  VisitQuantType(tile.dtype, [&](auto type) {
    int p = 0;
    // Types that are cheap to unpack are unpacked again for each group of rows. Signed types need
    // too many registers to compute two panels together.
    constexpr bool kCheap = type() == DType::kQ4_0 || type() == DType::kQ4_1;
    if constexpr (!kCheap && !HasSignedQuants(type())) {
      if (tile.rows > kFewRows) {
        for (; p + 2 <= tile.panel_count; p += 2) MultiplyManyRows<type()>(tile, p);
      }
    }
    for (; p < tile.panel_count; ++p) MultiplyPanel<type(), kFewRows>(tile, 0, p);
  });
}

}  // namespace tidepool::kernels

#endif
