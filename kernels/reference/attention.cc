#include "kernels/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"
#include "kernels/reference/int8_form.h"
#include "kernels/reference/truth.h"

namespace tidepool::kernels {
namespace {

// The positions of the elements of one head's keys or values for one token.
struct KvPlace {
  // `base` is the start of the head's elements in the block. `step` is the distance between two
  // elements.
  KvPlace(DType type, std::byte* base, int dims, int64_t at, int64_t step)
      : dtype(type), dim(dims), first(at), stride(step), scales(base), elements(base) {
    if (dtype == DType::kQ8_0) elements += sizeof(uint16_t) * dim * kKvBlockTokens / kQuantBlock;
  }

  int64_t Index(int d) const { return first + d * stride; }
  // Scales have the same order as elements. There is one for each 32 dimensions.
  std::byte* Scale(int d) const {
    const int64_t at =
        stride == 1 ? first / kQuantBlock + d / kQuantBlock : first + d / kQuantBlock * stride;
    return scales + sizeof(uint16_t) * at;
  }

  float Load(int d) const {
    if (dtype == DType::kF32) {
      float value;
      std::memcpy(&value, elements + 4 * Index(d), 4);
      return value;
    }
    uint16_t half;
    std::memcpy(&half, dtype == DType::kQ8_0 ? Scale(d) : elements + 2 * Index(d), 2);
    if (dtype == DType::kBF16) return BF16ToF32(half);
    if (dtype == DType::kF16) return F16ToF32(half);
    return F16ToF32(half) * static_cast<float>(static_cast<int8_t>(elements[Index(d)]));
  }

  void Store(const float* values) const {
    if (dtype == DType::kQ8_0) return StoreQuants(values);
    for (int d = 0; d < dim; ++d) {
      if (dtype == DType::kF32) {
        std::memcpy(elements + 4 * Index(d), &values[d], 4);
        continue;
      }
      const uint16_t half = dtype == DType::kF16 ? F32ToF16(values[d]) : F32ToBF16(values[d]);
      std::memcpy(elements + 2 * Index(d), &half, 2);
    }
  }

  void StoreQuants(const float* values) const {
    std::vector<int8_t> quants(dim);
    std::vector<float> floats(dim / kQuantBlock);
    std::vector<float> sums(dim / kQuantBlock);
    std::vector<int16_t> half_sums(2 * dim / kQuantBlock);
    ActivationBuffer out;
    out.values.cols = dim;
    out.quants = quants.data();
    out.scales = floats.data();
    out.sums = sums.data();
    out.half_sums = half_sums.data();
    for (int64_t b = 0; b < dim / kQuantBlock; ++b) {
      QuantizeBlock(values + b * kQuantBlock, b, out, 0);
    }
    for (int d = 0; d < dim; ++d) {
      elements[Index(d)] = static_cast<std::byte>(quants[d]);
      const uint16_t scale = F32ToF16(floats[d / kQuantBlock]);
      std::memcpy(Scale(d), &scale, 2);
    }
  }

  DType dtype;
  int dim;
  int64_t first;
  int64_t stride;
  std::byte* scales;
  std::byte* elements;
};

std::byte* BlockOf(const KvLayer& layer, const KvSpan& span, int64_t slot) {
  return layer.arena + span.blocks[slot / kKvBlockTokens] * layer.block_bytes;
}

KvPlace KeyPlace(const KvLayer& layer, const KvSpan& span, int64_t slot, int head) {
  std::byte* base = BlockOf(layer, span, slot) + layer.k_offset;
  return KvPlace(layer.dtype, base + head * KvHeadBytes(layer.dtype, layer.k_dim), layer.k_dim,
                 slot % kKvBlockTokens, kKvBlockTokens);
}

KvPlace ValuePlace(const KvLayer& layer, const KvSpan& span, int64_t slot, int head) {
  if (layer.values_in_keys) return KeyPlace(layer, span, slot, head);
  std::byte* base = BlockOf(layer, span, slot) + layer.v_offset;
  return KvPlace(layer.dtype, base + head * KvHeadBytes(layer.dtype, layer.v_dim), layer.v_dim,
                 slot % kKvBlockTokens * layer.v_dim, 1);
}

// One query head of a row, and the KV that the row sees.
struct HeadView {
  const KvSpan& span;
  int head;
  SlotRange visible;
  const float* gate;  // [v_dim], or null
};

void AttendHead(const AttendCall& call, const float* q, const HeadView& view, float* out) {
  const auto& [span, head, visible, gate] = view;
  const KvLayer& layer = call.layer;
  const int kv_head = head / (call.heads / layer.kv_heads);
  std::vector<double> scores;
  for (int64_t slot = visible.begin; slot < visible.end; ++slot) {
    const KvPlace key = KeyPlace(layer, span, slot, kv_head);
    double score = 0;
    for (int d = 0; d < layer.k_dim; ++d) score += static_cast<double>(q[d]) * key.Load(d);
    scores.push_back(SoftCapTruth(score * call.scale, call.soft_cap));
  }
  double max = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  if (!call.sinks.empty()) {
    max = std::max<double>(max, call.sinks[head]);
    total = std::exp(call.sinks[head] - max);
  }
  for (double& score : scores) total += score = std::exp(score - max);
  for (int d = 0; d < layer.v_dim; ++d) {
    double sum = 0;
    for (int64_t slot = visible.begin; slot < visible.end; ++slot) {
      sum += scores[slot - visible.begin] * ValuePlace(layer, span, slot, kv_head).Load(d);
    }
    out[d] =
        static_cast<float>(gate == nullptr ? sum / total : sum / total * SigmoidTruth(gate[d]));
  }
}

}  // namespace

void ReferenceStoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
                      absl::Span<const KvSpan> spans) {
  for (const KvSpan& span : spans) {
    for (int64_t i = 0; i < span.rows; ++i) {
      for (int h = 0; h < layer.kv_heads; ++h) {
        const int64_t slot = span.first_slot + i;
        const int64_t row = span.first_row + i;
        KeyPlace(layer, span, slot, h).Store(k.Row(row) + int64_t{h} * layer.k_dim);
        if (layer.values_in_keys) continue;
        ValuePlace(layer, span, slot, h).Store(v.Row(row) + int64_t{h} * layer.v_dim);
      }
    }
  }
}

void ReferenceAttend(const AttendCall& call, MatrixView out) {
  const KvLayer& layer = call.layer;
  for (const KvSpan& span : call.spans) {
    for (int64_t i = 0; i < span.rows; ++i) {
      const int64_t row = span.first_row + i;
      for (int h = 0; h < call.heads; ++h) {
        const int64_t at = int64_t{h} * layer.v_dim;
        const float* gate = call.gate.data == nullptr ? nullptr : call.gate.Row(row) + at;
        AttendHead(call, call.q.Row(row) + int64_t{h} * layer.k_dim,
                   {span, h, VisibleSlots(span, i), gate}, out.Row(row) + at);
      }
    }
  }
}

}  // namespace tidepool::kernels
