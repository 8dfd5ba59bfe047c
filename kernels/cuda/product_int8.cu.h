// The kernel for int8 activations and a quantised weight. A block of threads computes one panel (8
// outputs) for up to kRows rows. It goes over the panel in tiles:
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
#include "kernels/cuda/quant_block.cu.h"

namespace tidepool::kernels::cuda {

inline constexpr int kMaxProductThreads = 256;

// A factor and an integer, or a second pair of them.
struct Term {
  float factor;
  float value;
};

// What the kernel keeps in shared memory for a tile of kPairs pairs.
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

// Pairs that a thread loads before it computes the first one.
template <DType kType, int kRows>
inline constexpr int kPairsPerThread = kRows > 4                        ? 1
                                       : kRows > 1                      ? 2
                                       : FormatOf(kType).code_bits == 8 ? 2
                                                                        : 4;

TIDEPOOL_DEVICE int64_t RowOf(const int32_t* rows, int64_t i) {
  return rows == nullptr ? i : rows[i];
}

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

template <DType kType, int kRows>
struct Int8Product {
  using Tile = ProductTile<kType, kRows>;

  // The terms of one pair, for all rows.
  TIDEPOOL_DEVICE static void Compute(const JobInput& input, const ProductJob& job,
                                      const RawRow<kType>& raw, int64_t block, int slot, int pairs,
                                      const Shared<Term>& terms, const Shared<Term>& min_terms,
                                      const Shared<float>& mins) {
    uint32_t codes[kBlockWords];
    UnpackCodes<kType>(raw, codes);
    const BlockScales s = ScalesOf<kType>(raw);
    if constexpr (Tile::kHasMin && !Tile::kHalves) mins[slot] = s.min_step;
    TIDEPOOL_UNROLL
    for (int i = 0; i < kRows; ++i) {
      if (i >= job.rows) break;
      const int64_t at =
          (RowOf(input.x_rows, job.first + i) * input.cols + job.column) / kQuantBlock + block;
      const ActivationBlock x = LoadActivation(input, at);
      const int to = i * Tile::Stride(pairs) + slot;
      terms[to] = Term{s.step * x.scale, static_cast<float>(DotOf<kType>(codes, s, x))};
      if constexpr (Tile::kHasMin && Tile::kHalves) {
        const int weighted = s.min[0] * x.half_sums[0] + s.min[1] * x.half_sums[1];
        min_terms[to] = Term{s.min_step * x.scale, static_cast<float>(weighted)};
      }
    }
  }

  // Adds `blocks` blocks of a tile to the chain of output `row` of the panel.
  TIDEPOOL_DEVICE static float Extend(float sum, int row, int first_term, int blocks,
                                      const float* sums, const Shared<Term>& terms,
                                      const Shared<Term>& min_terms, const Shared<float>& mins) {
    TIDEPOOL_UNROLL_BY(8)
    for (int b = 0; b < blocks; ++b) {
      const int slot = b * kPanelRows + row;
      const Term term = terms[first_term + slot];
      sum = __builtin_fmaf(term.factor, term.value, sum);
      if constexpr (Tile::kHasMin && Tile::kHalves) {
        const Term min = min_terms[first_term + slot];
        sum = __builtin_fmaf(min.factor, min.value, sum);
      } else if constexpr (Tile::kHasMin) {
        sum = __builtin_fmaf(mins[slot], sums[b], sum);
      }
    }
    return sum;
  }

  TIDEPOOL_DEVICE static void Run(const JobInput& input, const ProductJob& job, int64_t cols) {
    constexpr int kPairs = kPairsPerThread<kType, kRows>;
    const int threads = BlockThreads();
    const int pairs = kPairs * threads;  // of a tile
    const int blocks = static_cast<int>(cols / kQuantBlock);
    const int total = blocks * kPanelRows;
    const std::byte* panel =
        job.panels +
        BlockX() * (cols / (kQuantBlock * FormatOf(kType).blocks) * FormatOf(kType).record_bytes());
    const int row = ThreadIndex() % kPanelRows;  // of the panel, of this thread's chain
    const int chain = ThreadIndex() / kPanelRows;
    const bool has_chain = chain < kRows && chain < job.rows;
    const float* sums = nullptr;
    if (has_chain) {
      sums = input.sums +
             (RowOf(input.x_rows, job.first + chain) * input.cols + job.column) / kQuantBlock;
    }
    float sum = 0;
    int buffer = 0;
    for (int first = 0; first < total; first += pairs, buffer ^= 1) {
      const int base = buffer * Tile::Bytes(pairs);
      const auto terms = SharedArray<Term>(base, kRows * Tile::Stride(pairs));
      const int min_base = base + Tile::TermBytes(pairs);
      const auto min_terms =
          SharedArray<Term>(min_base, Tile::kHalves ? kRows * Tile::Stride(pairs) : 0);
      const auto mins = SharedArray<float>(min_base, Tile::kHalves ? 0 : pairs);
      RawRow<kType> raw[kPairs];
      TIDEPOOL_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        const int wanted = first + p * threads + ThreadIndex();
        const int pair = wanted < total ? wanted : total - 1;
        raw[p] = LoadRow<kType>(panel, pair / kPanelRows, pair % kPanelRows);
      }
      TIDEPOOL_UNROLL
      for (int p = 0; p < kPairs; ++p) {
        const int slot = p * threads + ThreadIndex();
        if (first + slot >= total) continue;
        Compute(input, job, raw[p], (first + slot) / kPanelRows, slot, pairs, terms, min_terms,
                mins);
      }
      BlockBarrier();
      if (has_chain) {
        const int count = (total - first < pairs ? total - first : pairs) / kPanelRows;
        sum = Extend(sum, row, chain * Tile::Stride(pairs), count, sums + first / kPanelRows, terms,
                     min_terms, mins);
      }
    }
    if (has_chain) StoreOutput(input, job, chain, BlockX() * kPanelRows + row, sum);
  }

  TIDEPOOL_DEVICE static void StoreOutput(const JobInput& input, const ProductJob& job, int i,
                                          int output, float sum) {
    if (output >= job.outputs) return;
    if (job.bias != nullptr) sum = sum + job.bias[output];
    float* out = job.out + RowOf(input.out_rows, job.out_first + i) * job.out_stride + output;
    *out = job.add ? *out + sum : sum;
  }
};

template <DType kType, int kRows>
TIDEPOOL_KERNEL_OF(kMaxProductThreads, (kRows == 1 ? 5 : 3))
Int8ProductKernel(const JobInput input, const JobTable table, int64_t cols) {
  const ProductJob job =
      table.outside != nullptr ? table.outside[BlockY()] : table.inside[BlockY()];
  if (BlockX() * kPanelRows < job.outputs) Int8Product<kType, kRows>::Run(input, job, cols);
}

template <DType kType, int kRows>
void LaunchInt8Rows(const ProductLaunch& launch) {
  constexpr int kPairs = kPairsPerThread<kType, kRows>;
  // A panel of few columns does not need many threads.
  const int64_t pairs = launch.cols / kQuantBlock * kPanelRows;
  int threads = kMaxProductThreads;
  while (threads > 64 && threads / 2 * kPairs >= pairs) threads /= 2;
  const int panels = (launch.max_outputs + kPanelRows - 1) / kPanelRows;
  Launch(launch.stream, Int8ProductKernel<kType, kRows>, {panels, launch.jobs}, threads,
         2 * ProductTile<kType, kRows>::Bytes(kPairs * threads), launch.input, launch.table,
         launch.cols);
}

template <DType kType>
void LaunchInt8Product(const ProductLaunch& launch) {
  if (launch.rows == 1) return LaunchInt8Rows<kType, 1>(launch);
  if (launch.rows <= 4) return LaunchInt8Rows<kType, 4>(launch);
  return LaunchInt8Rows<kType, kJobRows>(launch);
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_PRODUCT_INT8_CU_H_
