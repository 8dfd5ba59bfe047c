// What the host and the kernels of tensor_core.h share: the arguments and the shapes of tiles.
#ifndef TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_CALL_CU_H_
#define TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_CALL_CU_H_

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"
#include "kernels/cuda/device_types.h"
#include "kernels/cuda/int8_rows.cu.h"
#include "kernels/cuda/runtime.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {

// Some rows of x, and a weight to multiply them with. Pointers are to device memory.
struct TensorCoreJob {
  const std::byte* weight = nullptr;  // panels
  const float* bias = nullptr;        // or null
  const std::byte* up = nullptr;      // with a gated FFN, `weight` is the gate, and this is `up`
  const float* up_bias = nullptr;
  const int32_t* rows = nullptr;      // row i of the job is row rows[i] of x
  const int32_t* out_rows = nullptr;  // and row out_rows[i] of the output
  int64_t first_row = 0;              // if `rows` is null: row i is row first_row + i of x
  int64_t first_out_row = 0;          // the same, if `out_rows` is null
  int64_t x_column = 0;               // the first column of x to multiply
  int64_t out_column = 0;             // the column of output 0
  int count = 0;                      // of rows
};

// The rows from `first` on of a job, for one row of blocks of the launch.
struct RowTile {
  int job;
  int first;
};

struct TensorCoreCall {
  ConstInt8Rows x;
  int row_blocks = 0;  // of 32 columns, in a row of x
  int64_t panel_bytes = 0;
  int blocks = 0;   // of 32 columns, in a row of the weight
  int outputs = 0;  // rows of the weight
  float* out = nullptr;
  int64_t out_stride = 0;
  Store store = Store::kReplace;
  // For gated FFNs. int8.quants is null if the output has no int8 form.
  Glu glu;
  Int8Rows int8;
  // `job` is the only one if `jobs` is null. Then block y has the rows from y * rows per block on.
  TensorCoreJob job;
  const TensorCoreJob* jobs = nullptr;
  const RowTile* tiles = nullptr;  // of each block y
};

inline constexpr int kFragmentOutputs = 16;
inline constexpr int kFragmentRows = 8;
inline constexpr int kStageBlocks = 4;

// The tile of a block of threads.
struct TileShape {
  int fragments;     // of 16 outputs in a warp
  int row_groups;    // of 8 rows in a warp; a multiple of 4
  int output_warps;  // warps that have different outputs
  int row_warps;     // warps that have different rows
  int matrices;      // 2 for a gated FFN: half of the fragments are of the gate, the others of `up`
  int blocks;        // blocks of threads that should fit in a processor
  int ahead;         // blocks of 32 columns that weights are loaded ahead: 1, 2 or 4

  constexpr int warp_outputs() const { return fragments / matrices * kFragmentOutputs; }
  constexpr int warp_rows() const { return row_groups * kFragmentRows; }
  constexpr int outputs() const { return output_warps * warp_outputs(); }
  constexpr int rows() const { return row_warps * warp_rows(); }
  constexpr int threads() const { return output_warps * row_warps * kWarpLanes; }

  // Shared memory of a stage: quants, scales, and sums or pairs of half sums. Lines of scales are
  // padded, so that copies of four blocks of eight rows are in different banks.
  constexpr int chunks() const { return rows() * kStageBlocks * 2; }  // of 16 quants
  constexpr int line() const { return rows() + kFragmentRows; }
  constexpr int stage_bytes() const { return chunks() * 16 + 2 * kStageBlocks * line() * 4; }
  constexpr int shared_bytes() const { return 2 * stage_bytes() + rows() * 4; }
};

// For many rows, and for less than kLargeRows. With a few rows there are few warps, which must load
// further ahead.
inline constexpr int kLargeRows = 48;
inline constexpr TileShape kLargeTile = {2, 8, 4, 1, 1, 3, 1};
inline constexpr TileShape kSmallTile = {1, 4, 4, 1, 1, 4, 4};
inline constexpr TileShape kLargeGluTile = {2, 8, 4, 1, 2, 3, 1};
inline constexpr TileShape kSmallGluTile = {2, 4, 4, 1, 2, 3, 2};
enum class TileForm : uint8_t { kLarge, kSmall, kLargeGlu, kSmallGlu };
constexpr TileShape ShapeOf(TileForm form) {
  switch (form) {
    case TileForm::kLarge:
      return kLargeTile;
    case TileForm::kSmall:
      return kSmallTile;
    case TileForm::kLargeGlu:
      return kLargeGluTile;
    case TileForm::kSmallGlu:
      break;
  }
  return kSmallGluTile;
}

// Starts the kernel that the form names, with one row of blocks for each of `row_tiles`. For all
// quantised types; tensor_core_*.cu.cc have the instances.
template <DType kType>
void LaunchTensorCores(Stream* stream, TileForm form, const TensorCoreCall& call, int row_tiles);

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_CALL_CU_H_
