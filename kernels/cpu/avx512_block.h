// Reads quantised panels into AVX-512 registers. Two panels are read at a time, so that the 32-bit
// lanes of a vector hold sixteen output rows. Only for files that are compiled for AVX-512.
#ifndef TIDEPOOL_KERNELS_CPU_AVX512_BLOCK_H_
#define TIDEPOOL_KERNELS_CPU_AVX512_BLOCK_H_

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2_block.h"
#include "kernels/panel.h"

namespace tidepool::kernels {

static inline __m512i Join(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
static inline __m512 Join(__m256 low, __m256 high) {
  return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

// Pointers to the two panels of a pair. A single last panel is paired with itself.
struct PanelPair {
  PanelPair(const std::byte* panels, int64_t panel_bytes, int panel_count, int first)
      : has_second(first + 1 < panel_count) {
    panel[0] = panels + first * panel_bytes;
    panel[1] = panel[0] + (has_second ? panel_bytes : 0);
  }

  const std::byte* panel[2];
  bool has_second;

  // Mask of the lanes that have an output row.
  __mmask16 Lanes() const { return has_second ? 0xffff : 0x00ff; }
};

// One unpacked block of a pair: the groups and RowScales (avx2_block.h) of both panels, joined.
struct PairBlock {
  __m512i quants[8];
  __m512 step;
  __m512 min;
  __m512i step_pairs;
  __m512i min_pairs;
};

template <DType kType>
[[gnu::always_inline]] static inline PairBlock UnpackPair(const PanelPair& pair, int64_t b) {
  constexpr QuantFormat kFormat = FormatOf(kType);
  const int64_t record = b / kFormat.blocks * kFormat.record_bytes();
  const int64_t block = record + kFormat.head + b % kFormat.blocks * kFormat.block_bytes();
  __m256i low[8];
  __m256i high[8];
  UnpackGroups<kType>(pair.panel[0] + block, low);
  UnpackGroups<kType>(pair.panel[1] + block, high);
  RowScales first;
  RowScales second;
  LoadScales<kType>(pair.panel[0] + record, pair.panel[0] + block, &first);
  LoadScales<kType>(pair.panel[1] + record, pair.panel[1] + block, &second);
  PairBlock w;
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) w.quants[g] = Join(low[g], high[g]);
  w.step = Join(first.step, second.step);
  if constexpr (kFormat.has_min) w.min = Join(first.min, second.min);
  if constexpr (kFormat.halves) w.step_pairs = Join(first.step_pairs, second.step_pairs);
  if constexpr (kFormat.halves && kFormat.has_min) {
    w.min_pairs = Join(first.min_pairs, second.min_pairs);
  }
  return w;
}

// Extends the int16 of half 0 or half 1 in each lane of `pairs` to int32.
static inline __m512i HalfOfPairs(__m512i pairs, int half) {
  return _mm512_srai_epi32(half == 0 ? _mm512_slli_epi32(pairs, 16) : pairs, 16);
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_AVX512_BLOCK_H_
