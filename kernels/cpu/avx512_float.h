// Float products with AVX-512. Only for files that are compiled for AVX-512.
#ifndef TIDEPOOL_KERNELS_CPU_AVX512_FLOAT_H_
#define TIDEPOOL_KERNELS_CPU_AVX512_FLOAT_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512_block.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/panel.h"

namespace tidepool::kernels {

// Loads column k of a pair of panels of float type.
template <DType kType>
static inline __m512 LoadColumn(const PanelPair& pair, int64_t k) {
  const int64_t at = k * PanelRecordBytes(kType);
  if constexpr (kType == DType::kF32) {
    const float* const low = reinterpret_cast<const float*>(pair.panel[0] + at);
    const float* const high = reinterpret_cast<const float*>(pair.panel[1] + at);
    return Join(_mm256_loadu_ps(low), _mm256_loadu_ps(high));
  } else {
    const __m256i halves = _mm256_inserti128_si256(
        _mm256_castsi128_si256(Load16(pair.panel[0] + at)), Load16(pair.panel[1] + at), 1);
    if constexpr (kType == DType::kF16) return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
  }
}

// Dequantises one block of a pair to [32][16] floats, exactly as GGUF defines.
template <DType kType>
static inline void DequantizePair(const PanelPair& pair, int64_t b, float* out) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const PairBlock w = UnpackPair<kType>(pair, b);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    __m512 step = w.step;
    __m512 min = kFormat.has_min ? w.min : _mm512_setzero_ps();
    if constexpr (kFormat.halves) {
      step = _mm512_mul_ps(step, _mm512_cvtepi32_ps(HalfOfPairs(w.step_pairs, g / 4)));
    }
    if constexpr (kFormat.halves && kFormat.has_min) {
      min = _mm512_mul_ps(min, _mm512_cvtepi32_ps(HalfOfPairs(w.min_pairs, g / 4)));
    }
    const __m512i quants = _mm512_sub_epi8(w.quants[g], _mm512_set1_epi8(QuantZero(kType)));
    for (int j = 0; j < 4; ++j) {  // byte j of each lane is a column
      const __m512i byte = _mm512_srai_epi32(_mm512_slli_epi32(quants, 24 - 8 * j), 24);
      const __m512 scaled = _mm512_mul_ps(step, _mm512_cvtepi32_ps(byte));
      _mm512_storeu_ps(out + (4 * g + j) * 2 * kPanelRows,
                       kFormat.has_min ? _mm512_add_ps(scaled, min) : scaled);
    }
  }
}

// Multiplies R rows of a tile, starting at `row`, with P pairs of panels, starting at `first`.
// Computes R * P * 16 chains over ascending columns.
template <int R, int P>
class FloatTile {
 public:
  FloatTile(const Tile& tile, int row, int first) : tile_(tile), row_(row), first_(first) {}

  void Multiply() const {
    __m512 sums[R][P];
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) sums[r][p] = _mm512_setzero_ps();
    }
    switch (tile_.dtype) {
      case DType::kF32:
        AddFloats<DType::kF32>(sums);
        break;
      case DType::kF16:
        AddFloats<DType::kF16>(sums);
        break;
      case DType::kBF16:
        AddFloats<DType::kBF16>(sums);
        break;
      default:
        AddBlocks(sums);
        break;
    }
    for (int r = 0; r < R; ++r) {
      for (int p = 0; p < P; ++p) {
        float* const out = tile_.out + (row_ + r) * kTileCols + (first_ + 2 * p) * kPanelRows;
        _mm512_mask_storeu_ps(out, Pair(p).Lanes(), sums[r][p]);
      }
    }
  }

 private:
  PanelPair Pair(int p) const {
    return PanelPair(tile_.panels, tile_.panel_bytes, tile_.panel_count, first_ + 2 * p);
  }

  [[gnu::always_inline]] void AddColumn(int64_t k, const __m512 (&w)[P],
                                        __m512 (&sums)[R][P]) const {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m512 x = _mm512_set1_ps(tile_.values[row_ + r][k]);
#pragma GCC unroll 2
      for (int p = 0; p < P; ++p) sums[r][p] = _mm512_fmadd_ps(x, w[p], sums[r][p]);
    }
  }

  template <DType kType>
  void AddFloats(__m512 (&sums)[R][P]) const {
    const PanelPair pairs[2] = {Pair(0), Pair(P - 1)};
    for (int64_t k = 0; k < tile_.cols; ++k) {
      __m512 w[P];
      for (int p = 0; p < P; ++p) w[p] = LoadColumn<kType>(pairs[p], k);
      AddColumn(k, w, sums);
    }
  }

  void AddBlocks(__m512 (&sums)[R][P]) const {
    constexpr int kLanes = 2 * kPanelRows;
    alignas(64) float weights[P][kQuantBlock * kLanes];
    for (int64_t b = 0; b < tile_.cols / kQuantBlock; ++b) {
      for (int p = 0; p < P; ++p) {
        VisitQuantType(tile_.dtype,
                       [&](auto type) { DequantizePair<type()>(Pair(p), b, weights[p]); });
      }
      for (int k = 0; k < kQuantBlock; ++k) {
        __m512 w[P];
        for (int p = 0; p < P; ++p) w[p] = _mm512_load_ps(weights[p] + k * kLanes);
        AddColumn(b * kQuantBlock + k, w, sums);
      }
    }
  }

  const Tile& tile_;
  int row_;
  int first_;
};

// Multiplies up to R rows, starting at `row`, with all panels.
template <int R>
static inline void MultiplyFloatRows(const Tile& tile, int row) {
  if (tile.rows - row < R) {
    if constexpr (R > 1) MultiplyFloatRows<R - 1>(tile, row);
    return;
  }
  if (tile.panel_count > 2) return FloatTile<R, 2>(tile, row, 0).Multiply();
  FloatTile<R, 1>(tile, row, 0).Multiply();
}

// Implements KernelTable::multiply_float.
static void MultiplyFloatTile(const Tile& tile) {
  static_assert(kTilePanels == 4);
  constexpr int kRows = 8;
  for (int row = 0; row < tile.rows; row += kRows) MultiplyFloatRows<kRows>(tile, row);
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_AVX512_FLOAT_H_
