// The kernel of all products with tensor cores: it computes a tile and stores it. See
// tensor_core_tile.cu.h for the arithmetic, and tensor_core.h for the forms of products.
#ifndef TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_KERNEL_CU_H_
#define TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_KERNEL_CU_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/glu_value.cu.h"
#include "kernels/cuda/int8_rows.cu.h"
#include "kernels/cuda/tensor_core_call.cu.h"
#include "kernels/cuda/tensor_core_tile.cu.h"
#include "kernels/math.h"
#include "kernels/ops.h"

namespace tidepool::kernels::cuda {

// Which rows and outputs a warp stores.
struct WarpTile {
  int first_output;
  int first_row;   // in the job
  int shared_row;  // first_row's row in shared memory
  int row_groups;  // number of groups of 8 rows that have at least one row of the job
};

template <TileShape kShape>
TIDEPOOL_DEVICE WarpTile WarpTileOf(const TensorCoreJob& job, int block_row) {
  WarpTile tile;
  const int warp = WarpIndex();
  tile.first_output =
      BlockX() * kShape.outputs() + warp % kShape.output_warps * kShape.warp_outputs();
  tile.shared_row = warp / kShape.output_warps * kShape.warp_rows();
  tile.first_row = block_row + tile.shared_row;
  const int groups = (job.count - tile.first_row + kFragmentRows - 1) / kFragmentRows;
  tile.row_groups = groups < 0 ? 0 : groups;
  return tile;
}

// Calls visit(f, half, output) for the outputs of a lane: fragment f, and whether the output is in
// the fragment's second panel.
template <TileShape kShape, typename Visit>
TIDEPOOL_DEVICE void ForOutputs(const WarpTile& tile, Visit visit) {
  TIDEPOOL_UNROLL
  for (int f = 0; f < kShape.fragments / kShape.matrices; ++f) {
    TIDEPOOL_UNROLL
    for (int half = 0; half < 2; ++half) {
      visit(f, half, tile.first_output + f * kFragmentOutputs + half * 8 + LaneIndex() / 4);
    }
  }
}

// Calls visit(g, i, row) for the rows of a lane. `row` is in the job, but may be after its last
// row.
template <TileShape kShape, typename Visit>
TIDEPOOL_DEVICE void ForRows(const WarpTile& tile, Visit visit) {
  TIDEPOOL_UNROLL
  for (int g = 0; g < kShape.row_groups; ++g) {
    if (g >= tile.row_groups) break;
    TIDEPOOL_UNROLL
    for (int i = 0; i < 2; ++i) {
      visit(g, i, tile.first_row + g * kFragmentRows + LaneIndex() % 4 * 2 + i);
    }
  }
}

TIDEPOOL_DEVICE int64_t OutRow(const TensorCoreJob& job, int row) {
  return job.out_rows != nullptr ? job.out_rows[row] : job.first_out_row + row;
}

// Adds the bias of each output, if there is one, to fragments from `first` on.
template <TileShape kShape>
TIDEPOOL_DEVICE void AddBias(const float* bias, const WarpTile& tile, int outputs, int first,
                             TileSums<kShape>* sums) {
  if (bias == nullptr) return;
  ForOutputs<kShape>(tile, [&](int f, int half, int output) {
    if (output >= outputs) return;
    const float value = bias[output];
    TIDEPOOL_UNROLL
    for (int g = 0; g < kShape.row_groups; ++g) {
      sums->at[first + f][g][2 * half] += value;
      sums->at[first + f][g][2 * half + 1] += value;
    }
  });
}

template <TileShape kShape>
TIDEPOOL_DEVICE void StoreSums(const TensorCoreCall& call, const TensorCoreJob& job,
                               const WarpTile& tile, const TileSums<kShape>& sums) {
  ForRows<kShape>(tile, [&](int g, int i, int row) {
    if (row >= job.count) return;
    float* out = call.out + OutRow(job, row) * call.out_stride + job.out_column;
    ForOutputs<kShape>(tile, [&](int f, int half, int output) {
      if (output >= call.outputs) return;
      const float sum = sums.at[f][g][2 * half + i];
      out[output] = call.store == Store::kAdd ? out[output] + sum : sum;
    });
  });
}

// Reduces over the eight lanes that have the same rows.
template <typename T, typename Combine>
TIDEPOOL_DEVICE T ReduceOutputs(T value, Combine combine) {
  TIDEPOOL_UNROLL
  for (int mask = 4; mask < kWarpLanes; mask *= 2) {
    value = combine(value, ShuffleXor(value, mask));
  }
  return value;
}

// Converts the outputs of a gated FFN to int8. Two neighbouring warps have the two halves of each
// block. They exchange the largest magnitudes and the sums through shared memory.
template <TileShape kShape>
TIDEPOOL_DEVICE void QuantizeTile(const Int8Rows& int8, const TensorCoreJob& job,
                                  const WarpTile& tile, int outputs,
                                  const TileSums<kShape>& values) {
  static_assert(kShape.warp_outputs() == kHalfBlock && kShape.output_warps % 2 == 0);
  constexpr int kCount = kShape.output_warps * kShape.rows();
  const Shared<uint32_t> tops = SharedArray<uint32_t>(0, kCount);  // [output warps][rows]
  const Shared<int> half_sums = SharedArray<int>(kCount * 4, kCount);
  const int warp = WarpIndex() % kShape.output_warps;
  const int half = warp % 2;
  const int lane_output = LaneIndex() / 4;
  const auto place = [&](int of_warp, int row) {
    return of_warp * kShape.rows() + row - tile.first_row + tile.shared_row;
  };
  const auto scale_of = [&](int row) {
    const uint32_t low = tops[place(warp - half, row)];
    const uint32_t high = tops[place(warp - half + 1, row)];
    return BlockScale(low > high ? low : high);
  };
  // There is an int8 form only if the outputs are a multiple of 32.
  const auto stored = [&](int row) { return row < job.count && tile.first_output < outputs; };
  BlockBarrier();  // all warps have read the last stage
  ForRows<kShape>(tile, [&](int g, int i, int row) {
    const uint32_t a = FloatBits(values.at[0][g][i]) & 0x7fffffff;
    const uint32_t b = FloatBits(values.at[0][g][2 + i]) & 0x7fffffff;
    const uint32_t top =
        ReduceOutputs(a > b ? a : b, [](uint32_t x, uint32_t y) { return x > y ? x : y; });
    if (lane_output == 0) tops[place(warp, row)] = top;
  });
  BlockBarrier();
  ForRows<kShape>(tile, [&](int g, int i, int row) {
    const BlockScale scale = scale_of(row);
    const int a = scale.Quant(values.at[0][g][i]);
    const int b = scale.Quant(values.at[0][g][2 + i]);
    const int sum = ReduceOutputs(a + b, [](int x, int y) { return x + y; });
    if (lane_output == 0) half_sums[place(warp, row)] = sum;
    if (!stored(row)) return;
    int8_t* out = int8.quants + OutRow(job, row) * int8.cols + tile.first_output + lane_output;
    out[0] = static_cast<int8_t>(a);
    out[8] = static_cast<int8_t>(b);
  });
  BlockBarrier();
  if (half != 0) return;
  ForRows<kShape>(tile, [&](int, int, int row) {
    if (!stored(row) || lane_output != 0) return;
    const int low = half_sums[place(warp, row)];
    const int high = half_sums[place(warp + 1, row)];
    const float scale = scale_of(row).scale;
    const int64_t block = (OutRow(job, row) * int8.cols + tile.first_output) / kQuantBlock;
    int8.scales[block] = scale;
    int8.sums[block] = scale * static_cast<float>(low + high);
    int8.half_sums[2 * block] = static_cast<int16_t>(low);
    int8.half_sums[2 * block + 1] = static_cast<int16_t>(high);
  });
}

// Stores glu(gate, up), and its int8 form. Changes the sums.
template <TileShape kShape>
TIDEPOOL_DEVICE void StoreGlu(const TensorCoreCall& call, const TensorCoreJob& job,
                              const WarpTile& tile, TileSums<kShape>* sums) {
  constexpr int kUp = kShape.fragments / 2;
  ForRows<kShape>(tile, [&](int g, int i, int row) {
    ForOutputs<kShape>(tile, [&](int f, int half, int output) {
      float& value = sums->at[f][g][2 * half + i];
      value = GluOf(call.glu, value, sums->at[kUp + f][g][2 * half + i]);
      if (row >= job.count || output >= call.outputs) return;
      call.out[OutRow(job, row) * call.out_stride + output] = value;
    });
  });
  if (call.int8.quants != nullptr) {
    QuantizeTile<kShape>(call.int8, job, tile, call.outputs, *sums);
  }
}

// Computes the sums of a warp's tile.
template <DType kType, TileShape kShape>
TIDEPOOL_DEVICE void MultiplyTile(const TensorCoreCall& call, const TensorCoreJob& job,
                                  int block_row, const WarpTile& tile, TileSums<kShape>* sums) {
  const RowLoader<kType, kShape> rows(call, job, block_row);
  rows.Load(0, 0);
  const WarpWeights<kType, kShape> weights(job.weight, job.up, call.panel_bytes, tile.first_output,
                                           call.outputs);
  constexpr int kAhead = kShape.ahead;
  static_assert(kStageBlocks % kAhead == 0);
  const int last = call.blocks - 1;
  WeightWords<kType, kShape.fragments> words[kAhead];
  TIDEPOOL_UNROLL
  for (int i = 0; i < kAhead; ++i) weights.Load(i < last ? i : last, &words[i]);
  TIDEPOOL_UNROLL_BY(1)
  for (int first = 0; first < call.blocks; first += kAhead) {
    const int stage_number = first / kStageBlocks % 2;
    if (first % kStageBlocks == 0) {
      BlockBarrier();  // frees the other stage
      if (first + kStageBlocks < call.blocks) {
        rows.Load(first + kStageBlocks, 1 - stage_number);
        WaitForCopies<1>();
      } else {
        WaitForCopies<0>();
      }
      BlockBarrier();
    }
    const Stage<kShape> stage(stage_number);
    TIDEPOOL_UNROLL
    for (int i = 0; i < kAhead; ++i) {
      const int block = first + i;
      if (block > last) break;
      const BlockStep step = {block % kStageBlocks, block + kAhead < last ? block + kAhead : last,
                              tile.shared_row, tile.row_groups};
      MultiplyBlock<kType, kShape>(stage, step, weights, &words[i], sums);
    }
  }
}

TIDEPOOL_DEVICE RowTile PlaceOf(const TensorCoreCall& call, int rows) {
  return call.jobs != nullptr ? call.tiles[BlockY()] : RowTile{0, BlockY() * rows};
}

TIDEPOOL_DEVICE TensorCoreJob JobOf(const TensorCoreCall& call, const RowTile& place) {
  return call.jobs != nullptr ? call.jobs[place.job] : call.job;
}

// nvcc cannot start kernels that have a struct as a template argument. So the argument is the
// TileForm.
template <DType kType, TileForm kForm>
TIDEPOOL_KERNEL_OF(ShapeOf(kForm).threads(), ShapeOf(kForm).blocks)
TensorCoreKernel(const TensorCoreCall call) {
  constexpr TileShape kShape = ShapeOf(kForm);
  TileSums<kShape> sums;
  {
    const RowTile place = PlaceOf(call, kShape.rows());
    const TensorCoreJob job = JobOf(call, place);
    MultiplyTile<kType, kShape>(call, job, place.first, WarpTileOf<kShape>(job, place.first),
                                &sums);
  }
  // The job is read again here, so that it needs no registers before this point.
  const RowTile place = PlaceOf(call, kShape.rows());
  const TensorCoreJob job = JobOf(call, place);
  const WarpTile tile = WarpTileOf<kShape>(job, place.first);
  AddBias<kShape>(job.bias, tile, call.outputs, 0, &sums);
  if constexpr (kShape.matrices == 1) {
    StoreSums<kShape>(call, job, tile, sums);
  } else {
    AddBias<kShape>(job.up_bias, tile, call.outputs, kShape.fragments / 2, &sums);
    StoreGlu<kShape>(call, job, tile, &sums);
  }
}

template <DType kType, TileForm kForm>
void LaunchForm(Stream* stream, const TensorCoreCall& call, int row_tiles) {
  constexpr TileShape kShape = ShapeOf(kForm);
  const int columns = (call.outputs + kShape.outputs() - 1) / kShape.outputs();
  Launch(stream, TensorCoreKernel<kType, kForm>, {columns, row_tiles}, kShape.threads(),
         kShape.shared_bytes(), call);
}

template <DType kType>
void LaunchTensorCores(Stream* stream, TileForm form, const TensorCoreCall& call, int row_tiles) {
  switch (form) {
    case TileForm::kLarge:
      return LaunchForm<kType, TileForm::kLarge>(stream, call, row_tiles);
    case TileForm::kSmall:
      return LaunchForm<kType, TileForm::kSmall>(stream, call, row_tiles);
    case TileForm::kLargeGlu:
      return LaunchForm<kType, TileForm::kLargeGlu>(stream, call, row_tiles);
    case TileForm::kSmallGlu:
      return LaunchForm<kType, TileForm::kSmallGlu>(stream, call, row_tiles);
  }
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_KERNEL_CU_H_
