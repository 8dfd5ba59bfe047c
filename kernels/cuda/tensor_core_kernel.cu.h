// The kernel of all products with tensor cores: it computes a tile and stores it. See
// tensor_core_tile.cu.h for the arithmetic, and tensor_core.h for the forms of products.
#ifndef TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_KERNEL_CU_H_
#define TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_KERNEL_CU_H_

#include <cstdint>

#include "kernels/cuda/device.h"
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
  int row_groups;  // of 8 rows, of which at least one row is in the job
};

template <TileShape kShape>
TIDEPOOL_DEVICE WarpTile WarpTileOf(const ProductJob& job, int block_row) {
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

// Calls visit(f, i, output) for the outputs of a lane. f and i are those of TileSums, without the
// row's bit.
template <TileShape kShape, typename Visit>
TIDEPOOL_DEVICE void ForOutputs(const WarpTile& tile, Visit visit) {
  TIDEPOOL_UNROLL
  for (int f = 0; f < kShape.fragments; ++f) {
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

TIDEPOOL_DEVICE int64_t OutRow(const ProductJob& job, int row) {
  return job.out_rows != nullptr ? job.out_rows[row] : job.first_out_row + row;
}

// Adds the bias of each output, if there is one.
template <TileShape kShape>
TIDEPOOL_DEVICE void AddBias(const float* bias, const WarpTile& tile, int outputs,
                             TileSums<kShape>* sums) {
  if (bias == nullptr) return;
  ForOutputs<kShape>(tile, [&](int f, int half, int output) {
    if (output >= outputs) return;
    const float value = bias[output];
    TIDEPOOL_UNROLL
    for (int g = 0; g < kShape.row_groups; ++g) {
      sums->at[f][g][2 * half] += value;
      sums->at[f][g][2 * half + 1] += value;
    }
  });
}

template <TileShape kShape>
TIDEPOOL_DEVICE void StoreSums(const TensorCoreCall& call, const ProductJob& job,
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

// Returns glu(gate, up), as backend.h defines it.
TIDEPOOL_DEVICE float GluOf(const Glu& glu, float gate, float up) {
  switch (glu.form) {
    case GluForm::kSwiGlu:
      return Silu(gate) * up;
    case GluForm::kGeGlu:
      return Gelu(gate) * up;
    case GluForm::kGeGluTanh:
      return GeluTanh(gate) * up;
    case GluForm::kClampedSwiGlu:
      break;
  }
  return ClampedSwiGlu(gate, up, glu.alpha, glu.limit);
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

// Converts 32 outputs of a row to int8, as ops.h defines it. The warp's lanes with the same row
// have four of them each, in the order of ForOutputs. `stored` is false if the row must not be
// stored.
TIDEPOOL_DEVICE void QuantizeOutputs(const MutableInt8Rows& int8, int64_t row, int first_output,
                                     const float (&values)[4], bool stored) {
  uint32_t bits = 0;
  TIDEPOOL_UNROLL
  for (int k = 0; k < 4; ++k) {
    const uint32_t magnitude = FloatBits(values[k]) & 0x7fffffff;
    bits = magnitude > bits ? magnitude : bits;
  }
  bits = ReduceOutputs(bits, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
  const bool finite = bits < 0x7f800000;
  const float amax = FloatFromBits(bits);
  const bool zero = !finite || amax < kTinyBlock;
  const float inverse = zero ? 0.0f : 127.0f / amax;
  const float scale = !finite ? FloatFromBits(0x7fc00000) : zero ? 0.0f : amax / 127.0f;
  int quants[4];
  TIDEPOOL_UNROLL
  for (int k = 0; k < 4; ++k) {
    quants[k] = zero ? 0 : static_cast<int>(RoundToEven(values[k] * inverse));
  }
  const auto add = [](int a, int b) { return a + b; };
  const int low = ReduceOutputs(quants[0] + quants[1], add);
  const int high = ReduceOutputs(quants[2] + quants[3], add);
  if (!stored) return;
  const int lane_output = LaneIndex() / 4;
  int8_t* out = int8.quants + row * int8.cols + first_output;
  TIDEPOOL_UNROLL
  for (int k = 0; k < 4; ++k) out[8 * k + lane_output] = static_cast<int8_t>(quants[k]);
  if (lane_output != 0) return;
  const int64_t block = (row * int8.cols + first_output) / kQuantBlock;
  int8.scales[block] = scale;
  int8.sums[block] = scale * static_cast<float>(low + high);
  int8.half_sums[2 * block] = static_cast<int16_t>(low);
  int8.half_sums[2 * block + 1] = static_cast<int16_t>(high);
}

// Stores glu(gate, up), and its int8 form.
template <TileShape kShape>
TIDEPOOL_DEVICE void StoreGlu(const TensorCoreCall& call, const ProductJob& job,
                              const WarpTile& tile, const TileSums<kShape>& gates,
                              const TileSums<kShape>& ups) {
  static_assert(kShape.warp_outputs() == kQuantBlock, "a warp has one int8 block of a row");
  ForRows<kShape>(tile, [&](int g, int i, int row) {
    const bool stored = row < job.count;
    const int64_t out_row = stored ? OutRow(job, row) : 0;
    float values[4];
    ForOutputs<kShape>(tile, [&](int f, int half, int output) {
      const float value = GluOf(call.glu, gates.at[f][g][2 * half + i], ups.at[f][g][2 * half + i]);
      values[2 * f + half] = value;
      if (stored && output < call.outputs) call.out[out_row * call.out_stride + output] = value;
    });
    if (call.int8.quants == nullptr) return;
    // There is an int8 form only if the outputs are a multiple of 32. So the warp has either 32
    // outputs, or none.
    QuantizeOutputs(call.int8, out_row, tile.first_output, values,
                    stored && tile.first_output < call.outputs);
  });
}

// Computes the sums of a warp's tile: those of `weight`, and of `up` if there are two matrices.
template <DType kType, TileShape kShape>
TIDEPOOL_DEVICE void MultiplyTile(const TensorCoreCall& call, const ProductJob& job, int block_row,
                                  const WarpTile& tile, TileSums<kShape> (&sums)[kShape.matrices]) {
  using Weights = WeightLoader<kType, kShape.fragments>;
  constexpr int kLast = kShape.matrices - 1;
  const RowLoader<kType, kShape> rows(call, job, block_row);
  rows.Load(0, 0);
  Weights weights(job.weight, call.panel_bytes, tile.first_output, call.outputs);
  Weights ups(kLast == 0 ? job.weight : job.up, call.panel_bytes, tile.first_output, call.outputs);
  int stage_number = 0;
  for (int first = 0; first < call.blocks; first += kStageBlocks) {
    // The last barrier has freed the other stage.
    if (first + kStageBlocks < call.blocks) {
      rows.Load(first + kStageBlocks, 1 - stage_number);
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    BlockBarrier();
    const Stage<kShape> stage(stage_number);
    const int count = call.blocks - first < kStageBlocks ? call.blocks - first : kStageBlocks;
    TIDEPOOL_UNROLL_BY(1)
    for (int b = 0; b < count; ++b) {
      const int next = first + b + 1 < call.blocks ? first + b + 1 : first + b;
      const BlockStep step = {b, next, tile.shared_row, tile.row_groups};
      MultiplyBlock<kType, kShape>(stage, step, &weights, &sums[0]);
      if constexpr (kLast > 0) MultiplyBlock<kType, kShape>(stage, step, &ups, &sums[kLast]);
    }
    BlockBarrier();
    stage_number = 1 - stage_number;
  }
}

TIDEPOOL_DEVICE RowTile PlaceOf(const TensorCoreCall& call, int rows) {
  return call.jobs != nullptr ? call.tiles[BlockY()] : RowTile{0, BlockY() * rows};
}

TIDEPOOL_DEVICE ProductJob JobOf(const TensorCoreCall& call, const RowTile& place) {
  return call.jobs != nullptr ? call.jobs[place.job] : call.job;
}

template <DType kType, TileShape kShape>
TIDEPOOL_KERNEL_OF(kShape.threads(), kShape.blocks)
TensorCoreKernel(const TensorCoreCall call) {
  TileSums<kShape> sums[kShape.matrices];
  {
    const RowTile place = PlaceOf(call, kShape.rows());
    const ProductJob job = JobOf(call, place);
    MultiplyTile<kType, kShape>(call, job, place.first, WarpTileOf<kShape>(job, place.first), sums);
  }
  // The job is read again, so that it needs no registers before.
  const RowTile place = PlaceOf(call, kShape.rows());
  const ProductJob job = JobOf(call, place);
  const WarpTile tile = WarpTileOf<kShape>(job, place.first);
  AddBias<kShape>(job.bias, tile, call.outputs, &sums[0]);
  if constexpr (kShape.matrices == 1) {
    StoreSums<kShape>(call, job, tile, sums[0]);
  } else {
    AddBias<kShape>(job.up_bias, tile, call.outputs, &sums[1]);
    StoreGlu<kShape>(call, job, tile, sums[0], sums[1]);
  }
}

template <DType kType, TileShape kShape>
void LaunchTile(Stream* stream, const TensorCoreCall& call, int row_tiles) {
  const int columns = (call.outputs + kShape.outputs() - 1) / kShape.outputs();
  Launch(stream, TensorCoreKernel<kType, kShape>, {columns, row_tiles}, kShape.threads(),
         kShape.shared_bytes(), call);
}

template <DType kType>
void LaunchTensorCores(Stream* stream, TileForm form, const TensorCoreCall& call, int row_tiles) {
  switch (form) {
    case TileForm::kLarge:
      return LaunchTile<kType, kLargeTile>(stream, call, row_tiles);
    case TileForm::kSmall:
      return LaunchTile<kType, kSmallTile>(stream, call, row_tiles);
    case TileForm::kLargeGlu:
      return LaunchTile<kType, kLargeGluTile>(stream, call, row_tiles);
    case TileForm::kSmallGlu:
      return LaunchTile<kType, kSmallGluTile>(stream, call, row_tiles);
  }
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_KERNEL_CU_H_
