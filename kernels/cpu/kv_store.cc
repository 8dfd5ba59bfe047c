// KernelBackend::StoreKv.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/kv_block.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

// Number of dimensions that are converted at a time; a multiple of kQuantBlock.
constexpr int kPiece = 64;

struct QuantPiece {
  int8_t quants[kPiece];
  float scales[kPiece / kQuantBlock];
};

QuantPiece Quantise(const CpuContext& context, const float* x, int n) {
  QuantPiece piece;
  float sums[kPiece / kQuantBlock];
  int16_t half_sums[2 * kPiece / kQuantBlock];
  context.kernels->quantize(x, n / kQuantBlock, {piece.quants, piece.scales, sums, half_sums});
  return piece;
}

// Copies n elements of `bytes` bytes to positions that are kKvBlockTokens elements apart.
void Scatter(const std::byte* source, int n, int64_t bytes, std::byte* out) {
  for (int i = 0; i < n; ++i, source += bytes, out += kKvBlockTokens * bytes) {
    if (bytes == 2) {
      std::memcpy(out, source, 2);
    } else {
      std::memcpy(out, source, bytes);
    }
  }
}

// Stores the keys of one row and head in column `token` of the block.
void StoreKeys(const CpuContext& context, const float* keys, int k_dim, int64_t token,
               const KvHeadBlock& out) {
  alignas(kAlignment) std::byte elements[kPiece * sizeof(float)];
  for (int d = 0; d < k_dim; d += kPiece) {
    const int n = std::min(kPiece, k_dim - d);
    const int64_t at = int64_t{d} * kKvBlockTokens + token;
    if (out.dtype != DType::kQ8_0) {
      const int64_t bytes = BlockBytes(out.dtype);
      context.kernels->attention.store(out.dtype, keys + d, n, elements);
      Scatter(elements, n, bytes, out.elements + at * bytes);
      continue;
    }
    const QuantPiece piece = Quantise(context, keys + d, n);
    for (int i = 0; i < n; ++i) {
      out.elements[at + i * kKvBlockTokens] = static_cast<std::byte>(piece.quants[i]);
    }
    for (int b = 0; b < n / kQuantBlock; ++b) {
      out.scales[(d / kQuantBlock + b) * kKvBlockTokens + token] = F32ToF16(piece.scales[b]);
    }
  }
}

// Stores the values of one row and head in row `token` of the block.
void StoreValues(const CpuContext& context, const float* values, int v_dim, int64_t token,
                 const KvHeadBlock& out) {
  if (out.dtype != DType::kQ8_0) {
    std::byte* to = out.elements + token * v_dim * BlockBytes(out.dtype);
    return context.kernels->attention.store(out.dtype, values, v_dim, to);
  }
  for (int d = 0; d < v_dim; d += kPiece) {
    const int n = std::min(kPiece, v_dim - d);
    const QuantPiece piece = Quantise(context, values + d, n);
    std::memcpy(out.elements + token * v_dim + d, piece.quants, n);
    for (int b = 0; b < n / kQuantBlock; ++b) {
      out.scales[(token * v_dim + d) / kQuantBlock + b] = F32ToF16(piece.scales[b]);
    }
  }
}

// The rows to store, and the layer in which they are stored.
struct KvRows {
  ConstMatrixView k;
  ConstMatrixView v;
  const KvLayer& layer;
};

// Stores the rows of `span` that belong to block number `block` of its sequence.
void StoreBlock(const CpuContext& context, const KvRows& rows, const KvSpan& span, int64_t block) {
  const auto& [k, v, layer] = rows;
  const int64_t begin = std::max(span.first_slot, block * kKvBlockTokens);
  const int64_t end = std::min(span.first_slot + span.rows, (block + 1) * kKvBlockTokens);
  for (int h = 0; h < layer.kv_heads; ++h) {
    const KvHeadBlock keys = KeysOf(layer, span.blocks[block], h);
    const KvHeadBlock values = ValuesOf(layer, span.blocks[block], h);
    for (int64_t slot = begin; slot < end; ++slot) {
      const int64_t row = span.first_row + slot - span.first_slot;
      const int64_t token = slot % kKvBlockTokens;
      StoreKeys(context, k.Row(row) + int64_t{h} * layer.k_dim, layer.k_dim, token, keys);
      if (layer.values_in_keys) continue;
      StoreValues(context, v.Row(row) + int64_t{h} * layer.v_dim, layer.v_dim, token, values);
    }
  }
}

// The blocks that a span writes, [first, first + count).
struct BlockRange {
  int64_t first = 0;
  int64_t count = 0;
};
BlockRange WrittenBlocks(const KvSpan& span) {
  if (span.rows == 0) return {};
  const int64_t first = span.first_slot / kKvBlockTokens;
  return {first, (span.first_slot + span.rows - 1) / kKvBlockTokens - first + 1};
}

}  // namespace

void StoreKvRows(const CpuContext& context, ConstMatrixView k, ConstMatrixView v,
                 const KvLayer& layer, absl::Span<const KvSpan> spans) {
  int64_t tasks = 0;
  for (const KvSpan& span : spans) tasks += WrittenBlocks(span).count;
  context.pool->ParallelFor(tasks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t task = begin; task < end; ++task) {
      int64_t at = task;
      const KvSpan* span = spans.data();
      for (; at >= WrittenBlocks(*span).count; ++span) at -= WrittenBlocks(*span).count;
      StoreBlock(context, {k, v, layer}, *span, WrittenBlocks(*span).first + at);
    }
  });
}

}  // namespace tidepool::kernels
