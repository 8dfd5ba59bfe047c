// Stores keys and values in the blocks of the KV cache.
#include <vector>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_store_layout.cu.h"
#include "kernels/cuda/rows_device.cu.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpLanes;

// Where the keys and values of a row are stored.
struct RowPlace {
  int32_t row;
  int32_t block;
  int32_t token;  // number of the token in the block
};

struct StoreArgs {
  const float* k;
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
  KvPart keys;
  KvPart values;
  DType dtype;
  int kv_heads;
  int key_pieces;  // number of pieces of 32 dimensions of a key
  int pieces;      // the same, of a key and a value together
  int blocks_per_row;
};

// Writes element `at` of a head. `dtype` is a float type.
TIDEPOOL_DEVICE void StoreFloat(DType dtype, float value, int64_t at, const KvHead& head) {
  if (dtype == DType::kF32) {
    reinterpret_cast<float*>(head.elements)[at] = value;
  } else {
    reinterpret_cast<uint16_t*>(head.elements)[at] =
        dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value);
  }
}

// A warp stores 32 dimensions of a key or a value.
TIDEPOOL_KERNEL_OF(kThreads, 8) StoreKernel(StoreArgs args, const RowPlace* places) {
  const RowPlace place = places[BlockX() / args.blocks_per_row];
  const int item = BlockX() % args.blocks_per_row * kWarps + WarpIndex();
  const int head = item / args.pieces;
  if (head >= args.kv_heads) return;
  const bool is_key = item % args.pieces < args.key_pieces;
  const int piece = item % args.pieces - (is_key ? 0 : args.key_pieces);
  const KvPart& part = is_key ? args.keys : args.values;
  const KvHead to = part.At(place.block, head);
  const int d = piece * kQuantBlock + LaneIndex();
  const int64_t at =
      is_key ? int64_t{d} * kKvBlockTokens + place.token : int64_t{place.token} * part.dim + d;
  const float* row =
      is_key ? args.k + place.row * args.k_stride : args.v + place.row * args.v_stride;
  const float value = d < part.dim ? row[int64_t{head} * part.dim + d] : 0;
  if (args.dtype != DType::kQ8_0) {
    if (d < part.dim) StoreFloat(args.dtype, value, at, to);
    return;
  }
  const QuantElement element = QuantizeElement(value);
  to.elements[at] = static_cast<std::byte>(element.quant);
  if (LaneIndex() != 0) return;
  const int scale = is_key ? piece * kKvBlockTokens + place.token
                           : place.token * (part.dim / kQuantBlock) + piece;
  to.scales[scale] = F32ToF16(element.scale);
}

}  // namespace

void StoreKvRows(const CudaContext& context, ConstMatrixView k, ConstMatrixView v,
                 const KvLayer& layer, absl::Span<const KvSpan> spans) {
  std::vector<RowPlace> places;
  for (const KvSpan& span : spans) {
    for (int64_t i = 0; i < span.rows; ++i) {
      const int64_t slot = span.first_slot + i;
      places.push_back({static_cast<int32_t>(span.first_row + i),
                        span.blocks[slot / kKvBlockTokens],
                        static_cast<int32_t>(slot % kKvBlockTokens)});
    }
  }
  if (places.empty()) return;
  StoreArgs args = {.k = k.data, .k_stride = k.stride, .v = v.data, .v_stride = v.stride};
  args.keys = KeysOf(layer);
  if (!layer.values_in_keys) args.values = ValuesOf(layer);
  args.dtype = layer.dtype;
  args.kv_heads = layer.kv_heads;
  args.key_pieces = BlocksOf(layer.k_dim, kQuantBlock);
  args.pieces = args.key_pieces + BlocksOf(args.values.dim, kQuantBlock);
  args.blocks_per_row = BlocksOf(int64_t{args.kv_heads} * args.pieces, kWarps);
  Launch(context.stream, StoreKernel, {static_cast<int>(places.size()) * args.blocks_per_row},
         kThreads, 0, args, context.staging->Carry(places));
}

}  // namespace tidepool::kernels::cuda
