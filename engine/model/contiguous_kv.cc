#include "engine/model/contiguous_kv.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "engine/model/state_layout.h"
#include "kernels/allocate.h"
#include "kernels/backend.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

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

absl::StatusOr<ContiguousKv> ContiguousKv::Create(const Model& model, int sequences,
                                                  int64_t slots) {
  ContiguousKv kv(model, Shape{sequences, slots});
  ASSIGN_OR_RETURN(kernels::Buffer memory,
                   kernels::AllocateBuffer(
                       kv.MemoryBytes(),
                       {.what = "the KV cache", .remedy = "use a smaller model, or fewer tokens"},
                       model.memory()));
  kv.SetMemory(std::move(memory));
  return kv;
}

ContiguousKv::ContiguousKv(const Model& model, int sequences, int64_t slots, int spare_states)
    : ContiguousKv(model, Shape{sequences, slots, spare_states}) {
  SetMemory(kernels::Buffer(MemoryBytes(), model.memory()));
}

ContiguousKv::ContiguousKv(const Model& model, const Shape& shape)
    : backend_(model.backend()),
      sequences_(shape.sequences),
      blocks_per_sequence_((shape.slots + kKvBlockTokens - 1) / kKvBlockTokens),
      current_(shape.sequences) {
  CHECK(shape.sequences > 0 && shape.slots > 0)
      << shape.sequences << " sequences of " << shape.slots << " slots";
  const std::vector<KvSpec>& specs = model.kv_specs();
  block_bytes_ = std::max(LayOut(specs, &view_.layers), MinStateBlockBytes(specs));
  StateLayout state = LayOutState(specs, block_bytes_);
  parts_ = state.parts;
  view_.states = std::move(state.arrays);
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool has_kv = specs[i].kind != KvKind::kState;
    view_.group_of_layer.push_back(has_kv ? 0 : -1);
    view_.layers[i].block_bytes = block_bytes_;
  }
  table_.resize(blocks_per_sequence_ * sequences_ +
                parts_ * (2 * int64_t{sequences_} + shape.spare_states));
  std::iota(table_.begin(), table_.end(), 0);
}

void ContiguousKv::SetMemory(kernels::Buffer memory) {
  arena_ = std::move(memory);
  for (size_t i = 0; i < view_.layers.size(); ++i) {
    view_.layers[i].arena = arena_.data();
    for (kernels::StateArray& array : view_.states[i]) array.arena = arena_.data();
  }
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
  for (int64_t part = 0; part < parts_; ++part) {
    const std::byte* source = arena_.data() + from[part] * block_bytes_;
    std::byte* target = arena_.data() + to[part] * block_bytes_;
    if (backend_ == nullptr) {
      std::memcpy(target, source, block_bytes_);
    } else {
      backend_->CopyWithin(source, target, block_bytes_);
    }
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
