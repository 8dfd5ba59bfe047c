// What the host and the kernels of tensor_core.h share: the arguments and the shapes of tiles. A
// shape says how many outputs and rows a tile has, and how far ahead its weights are loaded.
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
  const int32_t* out_rows = nullptr;  // its result is row out_rows[i] of the output
  int64_t first_row = 0;              // if `rows` is null: row i is row first_row + i of x
  int64_t first_out_row = 0;          // the same, if `out_rows` is null
  int64_t x_column = 0;               // the first column of x to multiply
  int64_t out_column = 0;             // the column of output 0
  int count = 0;                      // number of rows
};

// The rows of a job, from `first` on, that one row of the launch's blocks computes.
struct RowTile {
  int job;
  int first;
};

struct TensorCoreCall {
  ConstInt8Rows x;
  int row_blocks = 0;  // number of blocks of 32 columns in a row of x
  int64_t panel_bytes = 0;
  int blocks = 0;   // number of blocks of 32 columns in a row of the weight
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
  const RowTile* tiles = nullptr;  // tiles[y]: rows of the blocks with BlockY() == y
};

inline constexpr int kFragmentOutputs = 16;
inline constexpr int kFragmentRows = 8;
inline constexpr int kStageBlocks = 4;

// The tile of a block of threads.
struct TileShape {
  int fragments;     // number of fragments of 16 outputs in a warp
  int row_groups;    // number of groups of 8 rows in a warp; a multiple of 4
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
  // A chunk has 16 quants.
  constexpr int chunks() const { return rows() * kStageBlocks * 2; }
  constexpr int line() const { return rows() + kFragmentRows; }
  constexpr int stage_bytes() const { return chunks() * 16 + 2 * kStageBlocks * line() * 4; }
  constexpr int shared_bytes() const { return 2 * stage_bytes() + rows() * 4; }
};

// kLargeTile is for many rows, and kSmallTile for fewer than kLargeRows. With few rows there are
// few warps, so they must load further ahead.
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

// Starts the kernel that the form names, with `row_tiles` rows of blocks. tensor_core_*.cu.cc have
// the instances for all quantised types.
template <DType kType>
void LaunchTensorCores(Stream* stream, TileForm form, const TensorCoreCall& call, int row_tiles);

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_TENSOR_CORE_CALL_CU_H_
