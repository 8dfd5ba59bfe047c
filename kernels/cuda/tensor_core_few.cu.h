// Products of 2 to 8 rows on tensor cores. The weights are read once, so they should arrive as fast
// as memory allows: a block of threads has 16 outputs, and its warps read different parts of the
// columns at the same time.
//
// 1. The producers compute the exact integers of their blocks of 32 columns, with the panels as
//    fragments A and the rows of x as fragment B, and write them to shared memory.
// 2. The last warp adds them to the chains, in ascending order: a lane has one output and four rows.
// There are two buffers, so that the producers compute the next chunk meanwhile.
#ifndef TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_FEW_CU_H_
#define TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_FEW_CU_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/tensor_core_call.cu.h"
#include "kernels/cuda/tensor_core_tile.cu.h"
#include "kernels/cuda/tensor_core_weights.cu.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {

static_assert(kJobRows == kFragmentRows);

inline constexpr int kProducers = 8;       // warps
inline constexpr int kProducerBlocks = 4;  // of 32 columns, of a producer in a chunk
inline constexpr int kChunkBlocks = kProducers * kProducerBlocks;
inline constexpr int kFewThreads = (kProducers + 1) * kWarpLanes;

// A chunk in shared memory: for each of its blocks, the integers [16 outputs][8 rows], the scales of
// the outputs, and those of the rows of x. Numbers are read by two or four at a time.
template <DType kType>
class FewChunk {
 public:
  static constexpr int kIntegers = kFragmentOutputs * kFragmentRows;
  static constexpr int kMinWords = FormatOf(kType).has_min ? kFragmentOutputs : 0;
  static constexpr int kHalfWords = HasHalfMinimum(kType) ? 2 * kFragmentOutputs : 0;
  static constexpr int kSumWords = FormatOf(kType).has_min ? kFragmentRows : 0;
  // Where the parts begin, in words.
  static constexpr int kSteps = kChunkBlocks * kIntegers;
  static constexpr int kMinSteps = kSteps + kChunkBlocks * kFragmentOutputs;
  static constexpr int kMins = kMinSteps + kChunkBlocks * kMinWords;
  static constexpr int kScales = kMins + kChunkBlocks * kHalfWords;
  static constexpr int kSums = kScales + kChunkBlocks * kFragmentRows;
  static constexpr int kBytes = 4 * (kSums + kChunkBlocks * kSumWords);

  TIDEPOOL_DEVICE explicit FewChunk(int number)
      : integer_pairs_(SharedArray<U32x2>(number * kBytes, kSteps / 2)),
        integers_(SharedArray<F32x4>(number * kBytes, kSteps / 4)),
        steps_(SharedArray<float>(number * kBytes + 4 * kSteps, kMinSteps - kSteps)),
        min_steps_(SharedArray<float>(number * kBytes + 4 * kMinSteps, kMins - kMinSteps)),
        mins_(SharedArray<U32x2>(number * kBytes + 4 * kMins, (kScales - kMins) / 2)),
        scales_(SharedArray<uint32_t>(number * kBytes + 4 * kScales, kSums - kScales)),
        sums_(SharedArray<uint32_t>(number * kBytes + 4 * kSums, kChunkBlocks * kSumWords)),
        scales_of_four_(SharedArray<U32x4>(number * kBytes + 4 * kScales, (kSums - kScales) / 4)),
        sums_of_four_(
            SharedArray<U32x4>(number * kBytes + 4 * kSums, kChunkBlocks * kSumWords / 4)) {}

  // Stores a lane's part of fragment C of block b.
  TIDEPOOL_DEVICE void StoreIntegers(int b, const float (&integers)[4]) const {
    const int at = b * (kIntegers / 2) + LaneIndex();
    integer_pairs_[at] = U32x2{FloatBits(integers[0]), FloatBits(integers[1])};
    integer_pairs_[at + kWarpLanes] = U32x2{FloatBits(integers[2]), FloatBits(integers[3])};
  }
  TIDEPOOL_DEVICE void StoreScales(int b, int output, const RowScales& w) const {
    const int at = b * kFragmentOutputs + output;
    steps_[at] = w.step;
    if constexpr (kMinWords > 0) min_steps_[at] = w.min_step;
    if constexpr (kHalfWords > 0) mins_[at] = U32x2{FloatBits(w.min[0]), FloatBits(w.min[1])};
  }
  TIDEPOOL_DEVICE void StoreFactors(int b, int row, uint32_t scale, uint32_t sum) const {
    scales_[b * kFragmentRows + row] = scale;
    if constexpr (kSumWords > 0) sums_[b * kFragmentRows + row] = sum;
  }

  // Adds block b to the sums of a lane: those of output lane / 2, and of four rows from lane % 2 * 4
  // on.
  TIDEPOOL_DEVICE void AddTo(int b, float (&sums)[4]) const {
    const int lane = LaneIndex();
    const F32x4 integers = integers_[b * (kIntegers / 4) + lane];
    const int output = b * kFragmentOutputs + lane / 2;
    RowScales w = {};
    w.step = steps_[output];
    if constexpr (kMinWords > 0) w.min_step = min_steps_[output];
    if constexpr (kHalfWords > 0) {
      const U32x2 mins = mins_[output];
      w.min[0] = FloatFromBits(mins.x);
      w.min[1] = FloatFromBits(mins.y);
    }
    const int rows = b * (kFragmentRows / 4) + lane % 2;
    const U32x4 scales = scales_of_four_[rows];
    U32x4 x_sums = {};
    if constexpr (kSumWords > 0) x_sums = sums_of_four_[rows];
    sums[0] = AddBlock<kType>(sums[0], w, FactorsOf<kType>(scales.x, x_sums.x), integers.x);
    sums[1] = AddBlock<kType>(sums[1], w, FactorsOf<kType>(scales.y, x_sums.y), integers.y);
    sums[2] = AddBlock<kType>(sums[2], w, FactorsOf<kType>(scales.z, x_sums.z), integers.z);
    sums[3] = AddBlock<kType>(sums[3], w, FactorsOf<kType>(scales.w, x_sums.w), integers.w);
  }

 private:
  Shared<U32x2> integer_pairs_;
  Shared<F32x4> integers_;
  Shared<float> steps_;
  Shared<float> min_steps_;
  Shared<U32x2> mins_;
  Shared<uint32_t> scales_;
  Shared<uint32_t> sums_;
  Shared<U32x4> scales_of_four_;
  Shared<U32x4> sums_of_four_;
};

// What a producer loads of one block.
template <DType kType>
struct FewWords {
  WeightWords<kType, 1> weights;
  uint32_t x[2];  // the lane's part of fragment B
  uint32_t scale;
  uint32_t sum;
};

template <DType kType>
class FewProducer {
 public:
  TIDEPOOL_DEVICE FewProducer(const JobInput& input, const ProductJob& job, int blocks,
                              int64_t panel_bytes)
      : input_(input),
        weights_(job.panels, job.panels, panel_bytes, BlockX() * kFragmentOutputs, job.outputs),
        blocks_(blocks) {
    // Rows after the last one repeat it. Their results are not stored.
    const int lane_row = LaneIndex() / 4;
    const int64_t row = job.first + (lane_row < job.rows ? lane_row : job.rows - 1);
    const int64_t x_row = input.x_rows == nullptr ? row : input.x_rows[row];
    row_ = (x_row * input.cols + job.column) / kQuantBlock;
  }

  // Loads the blocks of this warp in the chunk that begins at block `first`.
  TIDEPOOL_DEVICE void Load(int first, FewWords<kType> (&words)[kProducerBlocks]) const {
    TIDEPOOL_UNROLL
    for (int i = 0; i < kProducerBlocks; ++i) {
      const int wanted = first + WarpIndex() * kProducerBlocks + i;
      const int block = wanted < blocks_ ? wanted : blocks_ - 1;
      weights_.Load(block, &words[i].weights);
      const int64_t at = row_ + block;
      const auto* quants = reinterpret_cast<const std::byte*>(input_.quants) + at * kQuantBlock +
                           LaneIndex() % 4 * 4;
      words[i].x[0] = LoadConstant32(quants);
      words[i].x[1] = LoadConstant32(quants + kHalfBlock);
      words[i].scale = LoadConstant32(reinterpret_cast<const std::byte*>(input_.scales + at));
      if constexpr (HasHalfMinimum(kType)) {
        words[i].sum = LoadConstant32(reinterpret_cast<const std::byte*>(input_.half_sums + 2 * at));
      } else if constexpr (FormatOf(kType).has_min) {
        words[i].sum = LoadConstant32(reinterpret_cast<const std::byte*>(input_.sums + at));
      }
    }
  }

  // Computes the loaded blocks.
  TIDEPOOL_DEVICE void Compute(int first, const FewWords<kType> (&words)[kProducerBlocks],
                               const FewChunk<kType>& chunk) const {
    const int quad = LaneIndex() / 4;
    TIDEPOOL_UNROLL
    for (int i = 0; i < kProducerBlocks; ++i) {
      const int b = WarpIndex() * kProducerBlocks + i;  // of the chunk
      if (first + b >= blocks_) break;
      uint32_t a[1][4];
      RowScales scales[1][2];
      weights_.Unpack(words[i].weights, a, scales);
      float integers[4];
      MultiplyFragment<kType>(a[0], scales[0], words[i].x, integers);
      chunk.StoreIntegers(b, integers);
      if (LaneIndex() % 4 == 0) {
        chunk.StoreScales(b, quad, scales[0][0]);
        chunk.StoreScales(b, kPanelRows + quad, scales[0][1]);
        chunk.StoreFactors(b, quad, words[i].scale, words[i].sum);
      }
    }
  }

 private:
  const JobInput& input_;
  WeightLoader<kType, 1, 1> weights_;
  int blocks_;
  int64_t row_;  // the lane's row of x, as the number of its first block
};

// Stores the sums of a lane of the last warp (see FewChunk::AddTo).
TIDEPOOL_DEVICE void StoreFewSums(const JobInput& input, const ProductJob& job,
                                  const float (&sums)[4]) {
  const int output = BlockX() * kFragmentOutputs + LaneIndex() / 2;
  if (output >= job.outputs) return;
  const float bias = job.bias != nullptr ? job.bias[output] : 0;
  TIDEPOOL_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int row = LaneIndex() % 2 * 4 + i;
    if (row >= job.rows) break;
    const int64_t at = job.out_first + row;
    float* out = job.out + (input.out_rows == nullptr ? at : input.out_rows[at]) * job.out_stride;
    const float sum = job.bias != nullptr ? sums[i] + bias : sums[i];
    out[output] = job.add ? out[output] + sum : sum;
  }
}

template <DType kType>
TIDEPOOL_KERNEL_OF(kFewThreads, 2)
FewRowsKernel(const JobInput input, const JobTable table, int blocks, int64_t panel_bytes) {
  const ProductJob job =
      table.outside != nullptr ? table.outside[BlockY()] : table.inside[BlockY()];
  if (BlockX() * kFragmentOutputs >= job.outputs) return;
  int number = 0;  // of the chunk's buffer
  if (WarpIndex() < kProducers) {
    const FewProducer<kType> producer(input, job, blocks, panel_bytes);
    FewWords<kType> words[kProducerBlocks] = {};
    producer.Load(0, words);
    TIDEPOOL_UNROLL_BY(1)
    for (int first = 0; first < blocks; first += kChunkBlocks, number = 1 - number) {
      FewWords<kType> next[kProducerBlocks] = {};
      if (first + kChunkBlocks < blocks) producer.Load(first + kChunkBlocks, next);
      producer.Compute(first, words, FewChunk<kType>(number));
      BlockBarrier();
      TIDEPOOL_UNROLL
      for (int i = 0; i < kProducerBlocks; ++i) words[i] = next[i];
    }
    return;
  }
  float sums[4] = {};
  for (int first = 0; first < blocks; first += kChunkBlocks, number = 1 - number) {
    BlockBarrier();
    const FewChunk<kType> chunk(number);
    const int count = blocks - first < kChunkBlocks ? blocks - first : kChunkBlocks;
    TIDEPOOL_UNROLL_BY(4)
    for (int b = 0; b < count; ++b) chunk.AddTo(b, sums);
  }
  StoreFewSums(input, job, sums);
}

template <DType kType>
void LaunchFewRows(const ProductLaunch& launch) {
  const int tiles = (launch.max_outputs + kFragmentOutputs - 1) / kFragmentOutputs;
  Launch(launch.stream, FewRowsKernel<kType>, {tiles, launch.jobs}, kFewThreads,
         2 * FewChunk<kType>::kBytes, launch.input, launch.table,
         static_cast<int>(launch.cols / kQuantBlock), PanelBytes(kType, launch.cols));
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_FEW_CU_H_
