// Integer products with AVX-512, written once for CPUs with and without VNNI. They compute the
// chains of ops.h. Only for files that are compiled for AVX-512. Each such file passes its own
// class D from an unnamed namespace, so that the linker cannot merge template instances of
// different files. A D<kType> is created from a PairBlock. Its function
//   __m512i Dot(const int8_t* x, __m512i half_sums) const
// returns the integers of the products. x points to the 32 quants of one row in the block, and
// half_sums has the sums of their two halves in every lane.
#ifndef TIDEPOOL_KERNELS_CPU_AVX512_MATMUL_H_
#define TIDEPOOL_KERNELS_CPU_AVX512_MATMUL_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512_block.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/panel.h"

namespace tidepool::kernels {

// Copies four bytes to every lane: four int8 of x, or the half sums of a block.
static inline __m512i BroadcastLane(const void* data) {
  int32_t lane;
  __builtin_memcpy(&lane, data, sizeof(lane));
  return _mm512_set1_epi32(lane);
}

// Multiplies all rows of the tile with the pair of panels that begins at `first`. Each block of the
// pair is unpacked once and then multiplied with every row. Only the sums need memory, so the loop
// is fast for any number of rows.
template <template <DType> class D, DType kType>
static inline void MultiplyPair(const Tile& tile, int first) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const PanelPair pair(tile.panels, tile.panel_bytes, tile.panel_count, first);
  // The two panels of a pair are two streams in memory, which is too much for the hardware's
  // prefetchers. So, while this pair is multiplied, software prefetches the data after it, which is
  // one ascending stream, into the second-level cache. It prefetches the next pair, or at least
  // kMinAhead bytes ahead if pairs are shorter.
  constexpr int64_t kMinAhead = 16384;
  constexpr int kAheadBytes = 2 * kFormat.record_bytes() / kFormat.blocks;
  const int64_t pair_bytes = 2 * tile.panel_bytes;
  const std::byte* ahead = pair.panel[0] + (pair_bytes > kMinAhead ? pair_bytes : kMinAhead);
  __m512 sums[kTileRows];
  for (int r = 0; r < tile.rows; ++r) sums[r] = _mm512_setzero_ps();
  for (int64_t b = 0; b < tile.cols / kQuantBlock; ++b, ahead += kAheadBytes) {
    for (int i = 0; i < kAheadBytes; i += 64) _mm_prefetch(ahead + i, _MM_HINT_T1);
    const PairBlock w = UnpackPair<kType>(pair, b);
    const D<kType> dots(w);
    for (int r = 0; r < tile.rows; ++r) {
      const __m512i half_sums = BroadcastLane(tile.half_sums[r] + 2 * b);
      const __m512 dx = _mm512_set1_ps(tile.scales[r][b]);
      const __m512i dot = dots.Dot(tile.quants[r] + b * kQuantBlock, half_sums);
      __m512 sum = _mm512_fmadd_ps(_mm512_mul_ps(w.step, dx), _mm512_cvtepi32_ps(dot), sums[r]);
      if constexpr (kFormat.has_min && kFormat.halves) {
        const __m512i weighted = _mm512_madd_epi16(half_sums, w.min_pairs);
        sum = _mm512_fmadd_ps(_mm512_mul_ps(w.min, dx), _mm512_cvtepi32_ps(weighted), sum);
      } else if constexpr (kFormat.has_min) {
        sum = _mm512_fmadd_ps(w.min, _mm512_set1_ps(tile.sums[r][b]), sum);
      }
      sums[r] = sum;
    }
  }
  for (int r = 0; r < tile.rows; ++r) {
    float* const out = tile.out + r * kTileCols + first * kPanelRows;
    _mm512_mask_storeu_ps(out, pair.Lanes(), sums[r]);
  }
}

// Implements KernelTable::multiply_int8. A product of a single row is limited only by memory. For
// it, AVX2's kernel is faster, because it processes one panel at a time.
template <template <DType> class D>
static inline void MultiplyInt8Tile(const Tile& tile) {
  if (tile.rows == 1) return Avx2Kernels()->multiply_int8(tile);
  VisitQuantType(tile.dtype, [&](auto type) {
    for (int p = 0; p < tile.panel_count; p += 2) MultiplyPair<D, type()>(tile, p);
  });
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_AVX512_MATMUL_H_
