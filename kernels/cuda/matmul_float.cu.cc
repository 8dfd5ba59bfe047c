// Products of float activations with weights of any type. A block of threads computes one panel (8
// outputs) for up to kRows rows. It unpacks the panel to floats in shared memory, tile by tile, and
// one thread per output computes the chain of fused multiply-adds over ascending columns.
#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/product_store.cu.h"
#include "kernels/math.h"
#include "kernels/panel.h"
#include "kernels/panel_block.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kTileColumns = 512;

template <DType kType>
TIDEPOOL_DEVICE float ElementOf(const std::byte* panel, int64_t i) {
  if constexpr (kType == DType::kF32) {
    return LoadOnce(reinterpret_cast<const float*>(panel) + i);
  } else if constexpr (kType == DType::kF16) {
    return FloatOfF16(LoadOnce(reinterpret_cast<const uint16_t*>(panel) + i));
  } else {
    return BF16ToF32(LoadOnce(reinterpret_cast<const uint16_t*>(panel) + i));
  }
}

// Unpacks `count` columns of a panel, beginning at column `first`, to out[column][row].
template <DType kType>
TIDEPOOL_DEVICE void UnpackTile(const std::byte* panel, int64_t first, int count,
                                const Shared<float>& out) {
  if constexpr (BlockElements(kType) == 1) {
    const int elements = count * kPanelRows;
    TIDEPOOL_UNROLL_BY(4)
    for (int i = ThreadIndex(); i < elements; i += BlockThreads()) {
      out[i] = ElementOf<kType>(panel, first * kPanelRows + i);
    }
  } else {
    const int pairs = count / kQuantBlock * kPanelRows;
    for (int pair = ThreadIndex(); pair < pairs; pair += BlockThreads()) {
      const int row = pair % kPanelRows;
      const int block = pair / kPanelRows;
      const PanelBlock at = PanelBlock::At<kType>(panel, first / kQuantBlock + block);
      const BlockScales scales = ScalesAt<kType>(at, row);
      for (int k = 0; k < kQuantBlock; ++k) {
        out[(block * kQuantBlock + k) * kPanelRows + row] = ValueAt<kType>(at, scales, row, k);
      }
    }
  }
}

template <DType kType>
TIDEPOOL_KERNEL_OF(kThreads, 4)
FloatProductKernel(const JobInput input, const JobTable table, int64_t cols, int64_t panel_bytes) {
  const ProductJob job =
      table.outside != nullptr ? table.outside[BlockY()] : table.inside[BlockY()];
  if (BlockX() * kPanelRows >= job.outputs) return;
  const std::byte* panel = job.panels + BlockX() * panel_bytes;
  const int row = ThreadIndex() % kPanelRows;
  const int chain = ThreadIndex() / kPanelRows;
  const bool has_chain = chain < job.rows;
  const float* x = input.values;
  if (has_chain) x += RowOf(input.x_rows, job.first + chain) * input.stride + job.column;
  float sum = 0;
  int buffer = 0;
  for (int64_t first = 0; first < cols; first += kTileColumns, buffer ^= 1) {
    const int count = static_cast<int>(cols - first < kTileColumns ? cols - first : kTileColumns);
    constexpr int kFloats = kTileColumns * kPanelRows;
    const auto tile =
        SharedArray<float>(buffer * kFloats * static_cast<int>(sizeof(float)), kFloats);
    UnpackTile<kType>(panel, first, count, tile);
    BlockBarrier();
    if (!has_chain) continue;
    TIDEPOOL_UNROLL_BY(8)
    for (int k = 0; k < count; ++k) {
      sum = __builtin_fmaf(x[first + k], tile[k * kPanelRows + row], sum);
    }
  }
  const int output = BlockX() * kPanelRows + row;
  if (has_chain) StoreOutput(input, job, chain, output, sum);
}

template <DType kType>
void LaunchType(const ProductLaunch& launch) {
  const int panels = (launch.max_outputs + kPanelRows - 1) / kPanelRows;
  constexpr int kSharedBytes = 2 * kTileColumns * kPanelRows * static_cast<int>(sizeof(float));
  Launch(launch.stream, FloatProductKernel<kType>, {panels, launch.jobs}, kThreads, kSharedBytes,
         launch.input, launch.table, launch.cols, PanelBytes(kType, launch.cols));
}

static_assert(kThreads >= kJobRows * kPanelRows);

}  // namespace

void LaunchFloatProduct(DType dtype, const ProductLaunch& launch) {
  switch (dtype) {
    case DType::kF32:
      return LaunchType<DType::kF32>(launch);
    case DType::kF16:
      return LaunchType<DType::kF16>(launch);
    case DType::kBF16:
      return LaunchType<DType::kBF16>(launch);
    default:
      return VisitQuantType(dtype, [&](auto type) { LaunchType<type()>(launch); });
  }
}

}  // namespace tidepool::kernels::cuda
