// Embed: gathers rows of a packed matrix and dequantises them.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/math.h"
#include "kernels/panel.h"
#include "kernels/panel_block.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// A thread unpacks one block of 32 columns, or one element of a float type.
template <DType kType>
TIDEPOOL_KERNEL EmbedKernel(const std::byte* table, int64_t panel_bytes, const int32_t* ids,
                            MatrixView out) {
  constexpr int kColumns = BlockElements(kType) == 1 ? 1 : kQuantBlock;
  const int64_t at = int64_t{BlockX()} * kThreads + ThreadIndex();
  if (at >= out.cols / kColumns) return;
  for (int64_t i = BlockY(); i < out.rows; i += GridY()) {
    const std::byte* panel = table + ids[i] / kPanelRows * panel_bytes;
    const int row = ids[i] % kPanelRows;
    float* to = out.data + i * out.stride + at * kColumns;
    if constexpr (kType == DType::kF32) {
      *to = reinterpret_cast<const float*>(panel)[at * kPanelRows + row];
    } else if constexpr (kType == DType::kF16) {
      *to = FloatOfF16(reinterpret_cast<const uint16_t*>(panel)[at * kPanelRows + row]);
    } else if constexpr (kType == DType::kBF16) {
      *to = BF16ToF32(reinterpret_cast<const uint16_t*>(panel)[at * kPanelRows + row]);
    } else {
      const PanelBlock block = PanelBlock::At<kType>(panel, at);
      const BlockScales scales = ScalesAt<kType>(block, row);
      for (int k = 0; k < kQuantBlock; ++k) to[k] = ValueAt<kType>(block, scales, row, k);
    }
  }
}

}  // namespace

void EmbedRows(const CudaContext& context, const PackedMatrix& table, absl::Span<const int32_t> ids,
               MatrixView out) {
  if (out.rows == 0 || out.cols == 0) return;
  const int32_t* device_ids = context.staging->Carry(ids);
  const auto launch = [&](auto type) {
    constexpr DType kType = type();
    const int64_t items = BlockElements(kType) == 1 ? out.cols : out.cols / kQuantBlock;
    constexpr int64_t kMaxY = 65535;
    const Grid grid = {static_cast<int>((items + kThreads - 1) / kThreads),
                       static_cast<int>(std::min(out.rows, kMaxY))};
    Launch(context.stream, EmbedKernel<kType>, grid, kThreads, 0, table.data,
           PanelBytes(kType, table.cols), device_ids, out);
  };
  switch (table.dtype) {
    case DType::kF32:
      return launch(TypeConstant<DType::kF32>());
    case DType::kF16:
      return launch(TypeConstant<DType::kF16>());
    case DType::kBF16:
      return launch(TypeConstant<DType::kBF16>());
    default:
      return VisitQuantType(table.dtype, launch);
  }
}

}  // namespace tidepool::kernels::cuda
