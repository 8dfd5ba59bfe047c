// The kernel for int8 activations and a quantised weight with dp4a, and the number of rows up to
// which it is used in place of tensor cores (kMaxInt8Rows). A block of threads computes one panel
// (8 outputs) for up to kRows rows. It goes over the panel in tiles:
// 1. Threads take (block of 32, row of the panel) pairs in order, so that a warp reads whole
//    sectors of the panel. Each pair gives, for each row of x, the exact integer of ops.h and its
//    factor, which go to shared memory.
// 2. One thread per output adds the tile to its chain, in ascending order.
// There are two buffers, so that other warps begin the next tile while the chains are computed.
#ifndef TIDEPOOL_KERNELS_CUDA_PRODUCT_INT8_CU_H_
#define TIDEPOOL_KERNELS_CUDA_PRODUCT_INT8_CU_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/product_mma.cu.h"
#include "kernels/cuda/product_store.cu.h"
#include "kernels/cuda/quant_block.cu.h"

namespace tidepool::kernels::cuda {

inline constexpr int kMaxProductThreads = 256;

// A factor and an integer of ops.h: those of the product, or those of the minimum.
struct Term {
  float factor;
  float value;
};

// The layout of a tile of `pairs` pairs in shared memory.
template <DType kType, int kRows>
struct ProductTile {
  static constexpr bool kHasMin = FormatOf(kType).has_min;
  static constexpr bool kHalves = FormatOf(kType).halves;
  // The terms of a row are followed by 8 unused ones, so that rows use different banks.
  static constexpr int Stride(int pairs) { return pairs + kPanelRows; }
  static constexpr int TermBytes(int pairs) {
    return kRows * Stride(pairs) * static_cast<int>(sizeof(Term));
  }
  // Either a second term for each row, or a minimum that all rows share.
  static constexpr int MinBytes(int pairs) {
    if (!kHasMin) return 0;
    return kHalves ? TermBytes(pairs) : pairs * static_cast<int>(sizeof(float));
  }
  static constexpr int Bytes(int pairs) { return TermBytes(pairs) + MinBytes(pairs); }
};

// Number of pairs that a thread loads before it computes the first one.
template <DType kType, int kRows>
inline constexpr int kPairsPerThread = kRows > 4                        ? 1
                                       : kRows > 1                      ? 2
                                       : FormatOf(kType).code_bits == 8 ? 2
                                                                        : 4;

TIDEPOOL_DEVICE ActivationBlock LoadActivation(const JobInput& input, int64_t block) {
  ActivationBlock x;
  const auto* quants = reinterpret_cast<const U32x4*>(input.quants + block * kQuantBlock);
  TIDEPOOL_UNROLL
  for (int i = 0; i < 2; ++i) {
    const U32x4 four = quants[i];
    x.words[4 * i] = four.x;
    x.words[4 * i + 1] = four.y;
    x.words[4 * i + 2] = four.z;
    x.words[4 * i + 3] = four.w;
  }
  const auto both = reinterpret_cast<const uint32_t*>(input.half_sums)[block];
  x.half_sums[0] = static_cast<int16_t>(both & 0xffff);
  x.half_sums[1] = static_cast<int16_t>(both >> 16);
  x.scale = input.scales[block];
  return x;
}

// One buffer of a tile of `pairs` pairs.
template <DType kType, int kRows>
struct TileBuffer {
  using Tile = ProductTile<kType, kRows>;

  TIDEPOOL_DEVICE TileBuffer(int first_byte, int tile_pairs)
      : pairs(tile_pairs),
        terms(SharedArray<Term>(first_byte, kRows * Tile::Stride(tile_pairs))),
        min_terms(SharedArray<Term>(first_byte + Tile::TermBytes(tile_pairs),
                                    kRows * Tile::Stride(tile_pairs))),
        mins(SharedArray<float>(first_byte + Tile::TermBytes(tile_pairs), tile_pairs)) {}

  int pairs;
  Shared<Term> terms;
  Shared<Term> min_terms;  // min_terms and mins are in the same place; a type uses at most one
  Shared<float> mins;
};

// A block of the panel, and the slot of one of its rows in the tile.
struct PairPlace {
  int64_t block;
  int slot;
};

// The first pair of a tile, and the number of pairs of the panel.
struct TileRange {
  int first;
  int total;
};

// The chain of one output.
struct Chain {
  int panel_row;      // row of the panel
  int row;            // row of the job
  const float* sums;  // sums of the row's int8 form, from the first column that is used
};

template <DType kType, int kRows>
struct Int8Product {
  using Tile = ProductTile<kType, kRows>;
  using Buffer = TileBuffer<kType, kRows>;

  // Computes the terms of one pair, for all rows.
  TIDEPOOL_DEVICE static void Compute(const JobInput& input, const ProductJob& job,
                                      const RawRow<kType>& raw, const PairPlace& place,
                                      const Buffer& to) {
    uint32_t codes[kBlockWords];
    UnpackCodes<kType>(raw, codes);
    const BlockScales s = ScalesOf<kType>(raw);
    if constexpr (Tile::kHasMin && !Tile::kHalves) to.mins[place.slot] = s.min_step;
    TIDEPOOL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      if (i >= job.rows) break;
      const int64_t first = RowOf(input.x_rows, job.first + i) * input.cols + job.column;
      const ActivationBlock x = LoadActivation(input, first / kQuantBlock + place.block);
      const int at = i * Tile::Stride(to.pairs) + place.slot;
      to.terms[at] = Term{s.step * x.scale, static_cast<float>(DotOf<kType>(codes, s, x))};
      if constexpr (Tile::kHasMin && Tile::kHalves) {
        const int weighted = s.min[0] * x.half_sums[0] + s.min[1] * x.half_sums[1];
        to.min_terms[at] = Term{s.min_step * x.scale, static_cast<float>(weighted)};
      }
    }
  }

  // Adds the `blocks` blocks of a tile, which begins at block `first`, to a chain.
  TIDEPOOL_DEVICE static float Extend(float sum, const Chain& chain, int first, int blocks,
                                      const Buffer& from) {
    const int first_term = chain.row * Tile::Stride(from.pairs) + chain.panel_row;
    TIDEPOOL_UNROLL_BY(8)
    for (int b = 0; b < blocks; ++b) {
      const int at = first_term + b * kPanelRows;
      const Term term = from.terms[at];
      sum = __builtin_fmaf(term.factor, term.value, sum);
      if constexpr (Tile::kHasMin && Tile::kHalves) {
        const Term min = from.min_terms[at];
        sum = __builtin_fmaf(min.factor, min.value, sum);
      } else if constexpr (Tile::kHasMin) {
        const float min = from.mins[b * kPanelRows + chain.panel_row];
        sum = __builtin_fmaf(min, chain.sums[first + b], sum);
      }
    }
    return sum;
  }

  // Loads the pairs of this thread in the tile that begins at pair `first`, and computes their
  // terms.
  TIDEPOOL_DEVICE static void ComputeTile(const JobInput& input, const ProductJob& job,
                                          const std::byte* panel, const TileRange& range,
                                          const Buffer& to) {
    constexpr int kPairs = kPairsPerThread<kType, kRows>;
    const int threads = BlockThreads();
    RawRow<kType> raw[kPairs];
    TIDEPOOL_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const int wanted = range.first + p * threads + ThreadIndex();
      const int pair = wanted < range.total ? wanted : range.total - 1;
      raw[p] = LoadRow<kType>(panel, pair / kPanelRows, pair % kPanelRows);
    }
    TIDEPOOL_UNROLL
    for (int p = 0; p < kPairs; ++p) {
      const int slot = p * threads + ThreadIndex();
      if (range.first + slot >= range.total) continue;
      Compute(input, job, raw[p], {(range.first + slot) / kPanelRows, slot}, to);
    }
  }

  TIDEPOOL_DEVICE static void Run(const JobInput& input, const ProductJob& job, int64_t cols) {
    const int pairs = kPairsPerThread<kType, kRows> * BlockThreads();  // pairs of a tile
    const int total = static_cast<int>(cols / kQuantBlock) * kPanelRows;
    const std::byte* panel =
        job.panels +
        BlockX() * (cols / (kQuantBlock * FormatOf(kType).blocks) * FormatOf(kType).record_bytes());
    Chain chain = {ThreadIndex() % kPanelRows, ThreadIndex() / kPanelRows, nullptr};
    const bool has_chain = chain.row < kRows && chain.row < job.rows;
    if (has_chain) {
      const int64_t first = RowOf(input.x_rows, job.first + chain.row) * input.cols + job.column;
      chain.sums = input.sums + first / kQuantBlock;
    }
    float sum = 0;
    int base = 0;
    for (int first = 0; first < total; first += pairs) {
      const Buffer buffer(base, pairs);
      ComputeTile(input, job, panel, {first, total}, buffer);
      BlockBarrier();
      if (has_chain) {
        const int count = total - first < pairs ? total - first : pairs;
        sum = Extend(sum, chain, first / kPanelRows, count / kPanelRows, buffer);
      }
      base = Tile::Bytes(pairs) - base;
    }
    if (has_chain) {
      StoreOutput(input, job, chain.row, BlockX() * kPanelRows + chain.panel_row, sum);
    }
  }
};

template <DType kType, int kRows>
TIDEPOOL_KERNEL_OF(kMaxProductThreads, (kRows == 1 ? 5 : 3))
Int8ProductKernel(const JobInput input, const JobTable table, int64_t cols) {
  const ProductJob job =
      table.outside != nullptr ? table.outside[BlockY()] : table.inside[BlockY()];
  if (BlockX() * kPanelRows < job.outputs) Int8Product<kType, kRows>::Run(input, job, cols);
}

// A panel of few columns does not need many threads.
template <DType kType, int kRows>
constexpr int Int8Threads(int64_t cols) {
  const int64_t pairs = cols / kQuantBlock * kPanelRows;
  int threads = kMaxProductThreads;
  while (threads > 64 && threads / 2 * kPairsPerThread<kType, kRows> >= pairs) threads /= 2;
  return threads;
}

template <DType kType, int kRows>
constexpr int Int8SharedBytes(int threads) {
  return 2 * ProductTile<kType, kRows>::Bytes(kPairsPerThread<kType, kRows> * threads);
}

template <DType kType, int kRows>
void LaunchInt8Rows(const ProductLaunch& launch) {
  const int threads = Int8Threads<kType, kRows>(launch.cols);
  const int panels = (launch.max_outputs + kPanelRows - 1) / kPanelRows;
  Launch(launch.stream, Int8ProductKernel<kType, kRows>, {panels, launch.jobs}, threads,
         Int8SharedBytes<kType, kRows>(threads), launch.input, launch.table, launch.cols);
}

// The largest number of rows of x for which this kernel is faster than tensor cores (measured on an
// H200; docs/gpu.md). Tensor cores take longer to start a panel, but then cost the same for 1 to 8
// rows.
template <DType kType>
inline constexpr int kMaxInt8Rows = [] {
  constexpr QuantFormat kFormat = FormatOf(kType);
  if (kFormat.code_bits == 8) return 1;                                    // Q8_0
  if (kFormat.blocks > 1 && kFormat.has_min && !kFormat.halves) return 1;  // Q4_K, Q5_K
  return 4;
}();

template <DType kType>
void LaunchInt8Product(const ProductLaunch& launch) {
  constexpr int kMaxRows = kMaxInt8Rows<kType>;
  if (launch.rows == 1) return LaunchInt8Rows<kType, 1>(launch);
  if constexpr (kMaxRows > 1) {
    if (launch.rows <= kMaxRows) return LaunchInt8Rows<kType, kMaxRows>(launch);
  }
  LaunchMmaProduct<kType>(launch);
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_PRODUCT_INT8_CU_H_
