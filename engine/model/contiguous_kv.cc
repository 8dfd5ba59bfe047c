#include "engine/model/contiguous_kv.h"

#include <numeric>

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
    kernels::KvLayer layer = {.dtype = spec.dtype,
                              .kv_heads = spec.kv_heads,
                              .k_dim = spec.k_dim,
                              .v_dim = spec.v_dim,
                              .values_in_keys = spec.values_in_keys};
    layer.k_offset = take(spec.kv_heads * kernels::KvHeadBytes(spec.dtype, spec.k_dim));
    if (!spec.values_in_keys) {
      layer.v_offset = take(spec.kv_heads * kernels::KvHeadBytes(spec.dtype, spec.v_dim));
    }
    layers->push_back(layer);
  }
  return at;
}

}  // namespace

ContiguousKv::ContiguousKv(const std::vector<KvSpec>& specs, int sequences, int64_t slots)
    : blocks_per_sequence_((slots + kKvBlockTokens - 1) / kKvBlockTokens) {
  CHECK(sequences > 0 && slots > 0) << sequences << " sequences of " << slots << " slots";
  const size_t block_bytes = LayOut(specs, &view_.layers);
  const int64_t blocks = blocks_per_sequence_ * sequences;
  arena_ = kernels::Buffer(blocks * block_bytes);
  for (kernels::KvLayer& layer : view_.layers) {
    layer.arena = arena_.data();
    layer.block_bytes = block_bytes;
  }
  view_.group_of_layer.assign(specs.size(), 0);
  table_.resize(blocks);
  std::iota(table_.begin(), table_.end(), 0);
}

std::vector<absl::Span<const int32_t>> ContiguousKv::blocks(int sequence) const {
  return {
      absl::MakeConstSpan(table_).subspan(sequence * blocks_per_sequence_, blocks_per_sequence_)};
}

size_t ContiguousKv::BlockBytes(const std::vector<KvSpec>& specs) {
  std::vector<kernels::KvLayer> layers;
  return LayOut(specs, &layers);
}

}  // namespace tidepool::engine
