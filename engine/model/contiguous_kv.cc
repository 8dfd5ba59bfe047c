#include "engine/model/contiguous_kv.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/model/state_layout.h"
#include "kernels/backend.h"
#include "kernels/base/check.h"

namespace tidepool::engine {
namespace {

using kernels::kKvBlockTokens;

// Places the layers of a block one after the other. Each part is aligned. Returns the bytes of the
// block.
size_t LayOut(const std::vector<KvSpec>& specs, std::vector<kernels::KvLayer>* layers) {
  size_t at = 0;
  const auto take = [&at](size_t bytes) {
    const size_t begin = at;
    at += (bytes + kernels::kAlignment - 1) / kernels::kAlignment * kernels::kAlignment;
    return begin;
  };
  for (const KvSpec& spec : specs) {
    kernels::KvLayer& layer = layers->emplace_back();
    if (spec.kind == KvKind::kState) continue;
    layer = {.dtype = spec.dtype,
             .kv_heads = spec.kv_heads,
             .k_dim = spec.k_dim,
             .v_dim = spec.v_dim,
             .values_in_keys = spec.values_in_keys};
    layer.k_offset = take(spec.kv_heads * kernels::KvHeadBytes(spec.dtype, spec.k_dim));
    if (!spec.values_in_keys) {
      layer.v_offset = take(spec.kv_heads * kernels::KvHeadBytes(spec.dtype, spec.v_dim));
    }
  }
  return at;
}

}  // namespace

ContiguousKv::ContiguousKv(const std::vector<KvSpec>& specs, int sequences, int64_t slots,
                           int spare_states)
    : sequences_(sequences),
      blocks_per_sequence_((slots + kKvBlockTokens - 1) / kKvBlockTokens),
      current_(sequences) {
  CHECK(sequences > 0 && slots > 0) << sequences << " sequences of " << slots << " slots";
  const size_t block_bytes = std::max(LayOut(specs, &view_.layers), MinStateBlockBytes(specs));
  StateLayout state = LayOutState(specs, block_bytes);
  parts_ = state.parts;
  view_.states = std::move(state.arrays);
  const int64_t blocks =
      blocks_per_sequence_ * sequences + parts_ * (2 * int64_t{sequences} + spare_states);
  arena_ = kernels::Buffer(blocks * block_bytes);
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool has_kv = specs[i].kind != KvKind::kState;
    view_.group_of_layer.push_back(has_kv ? 0 : -1);
    view_.layers[i].arena = arena_.data();
    view_.layers[i].block_bytes = block_bytes;
    for (kernels::StateArray& array : view_.states[i]) array.arena = arena_.data();
  }
  table_.resize(blocks);
  std::iota(table_.begin(), table_.end(), 0);
}

std::vector<absl::Span<const int32_t>> ContiguousKv::blocks(int sequence) const {
  return {
      absl::MakeConstSpan(table_).subspan(sequence * blocks_per_sequence_, blocks_per_sequence_)};
}

absl::Span<const int32_t> ContiguousKv::State(int64_t state) const {
  return absl::MakeConstSpan(table_).subspan(sequences_ * blocks_per_sequence_ + state * parts_,
                                             parts_);
}

void ContiguousKv::SetBlocks(int sequence, RowSpan* span) const {
  span->blocks = blocks(sequence);
  const int64_t current = 2 * int64_t{sequence} + current_[sequence];
  span->state_in = span->first_slot == 0 ? absl::Span<const int32_t>() : State(current);
  span->state_out = State(current ^ 1);
}

void ContiguousKv::Commit(int sequence) { current_[sequence] ^= 1; }

void ContiguousKv::ContinueFrom(int spare, int sequence) {
  const absl::Span<const int32_t> from = spare_state(spare);
  const absl::Span<const int32_t> to = State(2 * int64_t{sequence} + current_[sequence]);
  const size_t block_bytes = view_.layers.front().block_bytes;
  for (int64_t part = 0; part < parts_; ++part) {
    std::memcpy(arena_.data() + to[part] * block_bytes, arena_.data() + from[part] * block_bytes,
                block_bytes);
  }
}

size_t ContiguousKv::BlockBytes(const std::vector<KvSpec>& specs) {
  std::vector<kernels::KvLayer> layers;
  return LayOut(specs, &layers);
}

size_t ContiguousKv::StateBytes(const std::vector<KvSpec>& specs) {
  size_t bytes = 0;
  for (const KvSpec& spec : specs) {
    for (const StateSpec& array : spec.state) bytes += array.units * array.unit_bytes;
  }
  return bytes;
}

}  // namespace tidepool::engine
