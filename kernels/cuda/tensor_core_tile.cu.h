// The inner loop of products with tensor cores: a block of threads computes a tile of outputs x
// rows.
//
// A warp owns 16 or 32 outputs (one or two fragments A, which are weights) and some groups of 8
// rows of x (fragments B). For each block of 32 columns, the tensor cores compute the exact integer
// products. Then each lane adds them to its float sums, as ops.h defines it, one block after
// another. The integers do not need a conversion: a product starts at the bits of kRoundingShift,
// 1.5 * 2^23. So the bits of the result are those of the float kRoundingShift + product, and a
// subtraction gives the product. All products are below 2^22, except for sums of scaled halves
// (Q6_K), which are added as floats.
//
// Weights go from global memory to registers, one block ahead of their use. Rows of x go through
// shared memory, kStageBlocks blocks at a time, one stage ahead.
#ifndef TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_TILE_CU_H_
#define TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_TILE_CU_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/mma.h"
#include "kernels/cuda/tensor_core_call.cu.h"
#include "kernels/cuda/tensor_core_weights.cu.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {

// One stage of x in shared memory. Chunk c of a row's quants is at row * chunks + (c ^ row % 8), so
// that neither LoadMatrix4 nor the copies have bank conflicts.
template <TileShape kShape>
struct Stage {
  static constexpr int kLines = kStageBlocks * kShape.line();

  Shared<U32x4> quants;
  Shared<float> scales;   // [kStageBlocks][line()]
  Shared<uint32_t> sums;  // [kStageBlocks][line()]: bits of sums, or pairs of half sums
  // scales and sums of two rows at a time
  Shared<U32x2> scale_pairs;
  Shared<U32x2> sum_pairs;

  TIDEPOOL_DEVICE explicit Stage(int number) : Stage(Bytes{number * kShape.stage_bytes()}) {}

  TIDEPOOL_DEVICE static int ChunkIndex(int row, int chunk) {
    return row * (2 * kStageBlocks) + (chunk ^ row % 8);
  }

 private:
  struct Bytes {
    int quants;
    int scales = quants + kShape.chunks() * 16;
    int sums = scales + kLines * 4;
  };
  TIDEPOOL_DEVICE explicit Stage(Bytes first)
      : quants(SharedArray<U32x4>(first.quants, kShape.chunks())),
        scales(SharedArray<float>(first.scales, kLines)),
        sums(SharedArray<uint32_t>(first.sums, kLines)),
        scale_pairs(SharedArray<U32x2>(first.scales, kLines / 2)),
        sum_pairs(SharedArray<U32x2>(first.sums, kLines / 2)) {}
};

// Copies the rows of x that a block of threads multiplies to shared memory.
template <DType kType, TileShape kShape>
class RowLoader {
 public:
  TIDEPOOL_DEVICE RowLoader(const TensorCoreCall& call, const TensorCoreJob& job, int first)
      : call_(call),
        ids_(SharedArray<int32_t>(2 * kShape.stage_bytes(), kShape.rows())),
        first_block_(static_cast<int>(job.x_column / kQuantBlock)) {
    for (int i = ThreadIndex(); i < kShape.rows(); i += kShape.threads()) {
      // Rows after the job's last row repeat the last row. Their results are not stored.
      const int row = first + i < job.count ? first + i : job.count - 1;
      ids_[i] = job.rows != nullptr ? job.rows[row] : static_cast<int32_t>(job.first_row + row);
    }
    BlockBarrier();
  }

  // Begins to copy the blocks from `block` on, as a group of copies.
  TIDEPOOL_DEVICE void Load(int block, int stage_number) const {
    const Stage<kShape> stage(stage_number);
    constexpr int kChunks = 2 * kStageBlocks;  // number of chunks of a row
    static_assert(kShape.rows() * kStageBlocks % kShape.threads() == 0);
    const int blocks = call_.blocks - block;
    // With Forget, values that are computed from `thread` need no registers between two calls.
    const int thread = Forget(ThreadIndex());
    TIDEPOOL_UNROLL
    for (int first = 0; first < kShape.chunks(); first += kShape.threads()) {
      const int i = first + thread;
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      if (chunk / 2 >= blocks) continue;
      CopyAsync(reinterpret_cast<const U32x4*>(call_.x.quants) + 2 * BlockIndex(row, block) + chunk,
                stage.quants, stage.ChunkIndex(row, chunk));
    }
    TIDEPOOL_UNROLL
    for (int first = 0; first < kShape.rows() * kStageBlocks; first += kShape.threads()) {
      const int i = first + thread;
      const int row = i / kStageBlocks;
      const int b = i % kStageBlocks;
      if (b >= blocks) continue;
      const int64_t from = BlockIndex(row, block) + b;
      const int to = b * kShape.line() + row;
      CopyAsync(call_.x.scales + from, stage.scales, to);
      if constexpr (HasHalfMinimum(kType)) {
        CopyAsync(reinterpret_cast<const uint32_t*>(call_.x.half_sums) + from, stage.sums, to);
      } else if constexpr (FormatOf(kType).has_min) {
        CopyAsync(reinterpret_cast<const uint32_t*>(call_.x.sums) + from, stage.sums, to);
      }
    }
    CommitCopies();
  }

 private:
  // The number of a block among all blocks of x.
  TIDEPOOL_DEVICE int64_t BlockIndex(int row, int block) const {
    return int64_t{ids_[row]} * call_.row_blocks + (first_block_ + block);
  }

  const TensorCoreCall& call_;
  Shared<int32_t> ids_;  // [rows()]: rows of x
  int first_block_;
};

// What a lane needs of one row of x in one block.
struct RowFactors {
  float scale;
  float sum;      // for minima of blocks
  float half[2];  // for minima of halves: the sums of the quants
};

template <DType kType>
TIDEPOOL_DEVICE RowFactors FactorsOf(uint32_t scale, uint32_t sums) {
  RowFactors x = {};
  x.scale = FloatFromBits(scale);
  if constexpr (HasHalfMinimum(kType)) {
    x.half[0] = static_cast<float>(static_cast<int16_t>(sums & 0xffff));
    x.half[1] = static_cast<float>(static_cast<int16_t>(sums >> 16));
  } else if constexpr (FormatOf(kType).has_min) {
    x.sum = FloatFromBits(sums);
  }
  return x;
}

inline constexpr int kShiftBits = 0x4b400000;  // the bits of kRoundingShift

TIDEPOOL_DEVICE float ProductOf(int bits) {
  return FloatFromBits(static_cast<uint32_t>(bits)) - kRoundingShift;
}

// Returns the integer of a block that ops.h calls dot or I. `low` and `high` are the results of one
// product, or of two.
template <DType kType>
TIDEPOOL_DEVICE float IntegerOf(const RowScales& w, int low, int high) {
  if constexpr (HasTwoProducts(kType)) {
    // exact, because all numbers are integers below 2^24
    return __builtin_fmaf(w.scale[1], ProductOf(high), w.scale[0] * ProductOf(low));
  } else if constexpr (kType == DType::kQ3_K) {
    return kRoundingShift - FloatFromBits(static_cast<uint32_t>(low));
  } else {
    return ProductOf(low);
  }
}

// Adds one block to a sum.
template <DType kType>
TIDEPOOL_DEVICE float AddBlock(float sum, const RowScales& w, const RowFactors& x, float integer) {
  sum = __builtin_fmaf(w.step * x.scale, integer, sum);
  if constexpr (HasHalfMinimum(kType)) {
    const float weighted = __builtin_fmaf(w.min[1], x.half[1], w.min[0] * x.half[0]);
    sum = __builtin_fmaf(w.min_step * x.scale, weighted, sum);
  } else if constexpr (FormatOf(kType).has_min) {
    sum = __builtin_fmaf(w.min_step, x.sum, sum);
  }
  return sum;
}

// Computes the integers of 16 outputs and 8 rows. x are the words of a fragment B.
template <DType kType>
TIDEPOOL_DEVICE void MultiplyFragment(const uint32_t (&a)[4], const RowScales (&scales)[2],
                                      const uint32_t (&x)[2], float (&integers)[4]) {
  int low[4];
  int high[4] = {};
  if constexpr (HasTwoProducts(kType)) {
    Mma16(a[0], a[1], x[0], kShiftBits, low);
    Mma16(a[2], a[3], x[1], kShiftBits, high);
  } else {
    Mma32(a, x, kShiftBits, low);
  }
  TIDEPOOL_UNROLL
  for (int i = 0; i < 4; ++i) integers[i] = IntegerOf<kType>(scales[i / 2], low[i], high[i]);
}

// The sums of a warp. A lane's sum [f][g][i] is that of output 16 f + 8 (i / 2) + lane / 4 and row
// 8 g + 2 (lane % 4) + i % 2 of the warp.
template <TileShape kShape>
struct TileSums {
  float at[kShape.fragments][kShape.row_groups][4] = {};
};

// Which block of which rows a warp multiplies.
struct BlockStep {
  int block;       // number of the block in the stage
  int next;        // the block of the weight to load for the next step
  int first_row;   // the warp's first row in shared memory
  int row_groups;  // number of row groups that have rows of the job
};

template <DType kType, TileShape kShape>
using WarpWeights = WeightLoader<kType, kShape.fragments, kShape.matrices>;

// Multiplies a block of a stage with the loaded words, and loads the words of the next step.
template <DType kType, TileShape kShape>
TIDEPOOL_DEVICE void MultiplyBlock(const Stage<kShape>& stage, const BlockStep& step,
                                   const WarpWeights<kType, kShape>& weights,
                                   WeightWords<kType, kShape.fragments>* words,
                                   TileSums<kShape>* sums) {
  const int lane = Forget(LaneIndex());  // so that values computed from it need no registers
  uint32_t a[kShape.fragments][4];
  RowScales scales[kShape.fragments][2];
  weights.Unpack(*words, a, scales);
  weights.Load(step.next, words);
  // Matrix m of LoadMatrix4 is half m % 2 of row group m / 2. The number of its row, modulo 8, is
  // lane % 8.
  const int matrix_row = step.first_row + lane / 16 * kFragmentRows + lane % 8;
  const int chunk = (2 * step.block + lane / 8 % 2) ^ lane % 8;
  const int first_pair = step.block * (kShape.line() / 2) + step.first_row / 2 + lane % 4;
  TIDEPOOL_UNROLL
  for (int pair = 0; pair < kShape.row_groups; pair += 2) {
    // A check for each half of the rows is enough, and faster than one for each pair.
    if (pair % (kShape.row_groups / 2) == 0 && pair >= step.row_groups) break;
    uint32_t x[4];
    LoadMatrix4(stage.quants, (matrix_row + pair * kFragmentRows) * 2 * kStageBlocks + chunk, x);
    TIDEPOOL_UNROLL
    for (int g = pair; g < pair + 2; ++g) {
      const int pair_at = first_pair + g * (kFragmentRows / 2);
      const U32x2 dx = stage.scale_pairs[pair_at];
      U32x2 sum_bits = {};
      if constexpr (FormatOf(kType).has_min) sum_bits = stage.sum_pairs[pair_at];
      const RowFactors factors[2] = {FactorsOf<kType>(dx.x, sum_bits.x),
                                     FactorsOf<kType>(dx.y, sum_bits.y)};
      TIDEPOOL_UNROLL
      for (int f = 0; f < kShape.fragments; ++f) {
        float integers[4];
        MultiplyFragment<kType>(a[f], scales[f], {x[2 * (g - pair)], x[2 * (g - pair) + 1]},
                                integers);
        TIDEPOOL_UNROLL
        for (int i = 0; i < 4; ++i) {
          float& sum = sums->at[f][g][i];
          sum = AddBlock<kType>(sum, scales[f][i / 2], factors[i % 2], integers[i]);
        }
      }
    }
  }
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_TILE_CU_H_
