#include "engine/kv/kv_layout.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/model/state_layout.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kBlockTokens = kernels::kKvBlockTokens;

size_t AlignUp(size_t bytes) {
  return (bytes + kernels::kAlignment - 1) / kernels::kAlignment * kernels::kAlignment;
}

// Returns the bytes of one layer in a block: its keys, followed by its values.
size_t LayerBytes(const KvSpec& spec) {
  const size_t keys = AlignUp(spec.kv_heads * kernels::KvHeadBytes(spec.dtype, spec.k_dim));
  if (spec.values_in_keys) return keys;
  return keys + AlignUp(spec.kv_heads * kernels::KvHeadBytes(spec.dtype, spec.v_dim));
}

// All layers that have one spec.
struct SpecLayers {
  KvSpec spec;
  int64_t layers = 0;

  size_t bytes() const { return LayerBytes(spec); }
  // Returns the number of groups that these layers need if a block has `unit` bytes, or 0 if a
  // layer does not fit into a block.
  int64_t GroupsIn(size_t unit) const {
    const auto per_group = static_cast<int64_t>(unit / bytes());
    return per_group == 0 ? 0 : (layers + per_group - 1) / per_group;
  }
};

// Layers that only have a recurrent state are not counted.
std::vector<SpecLayers> CountSpecs(const std::vector<KvSpec>& layers) {
  std::vector<SpecLayers> specs;
  for (const KvSpec& spec : layers) {
    if (spec.kind == KvKind::kState) continue;
    auto found = std::find_if(specs.begin(), specs.end(),
                              [&](const SpecLayers& one) { return one.spec == spec; });
    if (found == specs.end()) found = specs.insert(specs.end(), {spec, 0});
    ++found->layers;
  }
  return specs;
}

// Chooses the number of bytes of a block, at least `least`. Of the sizes that waste at most
// kMaxWaste of the memory, it is the largest, so that there are few groups. If there is no such
// size, it is the one that wastes least.
size_t ChooseBlockBytes(const std::vector<SpecLayers>& specs, size_t least) {
  constexpr double kMaxWaste = 0.03;
  size_t needed = 0;
  for (const SpecLayers& one : specs) needed += one.layers * one.bytes();
  size_t best = 0;
  double best_waste = std::numeric_limits<double>::infinity();
  for (const SpecLayers& one : specs) {
    for (int64_t count = 1; count <= one.layers; ++count) {
      const size_t unit = std::max(least, count * one.bytes());
      size_t used = 0;
      bool fits = true;
      for (const SpecLayers& other : specs) {
        fits = fits && other.GroupsIn(unit) > 0;
        used += other.GroupsIn(unit) * unit;
      }
      if (!fits) continue;
      double waste = static_cast<double>(used) / static_cast<double>(needed) - 1;
      if (waste <= kMaxWaste) waste = 0;
      if (waste < best_waste || (waste == best_waste && unit > best)) {
        best = unit;
        best_waste = waste;
      }
    }
  }
  return best;
}

// Returns the bytes of a block of a model without KV: those of the largest layer's state.
size_t LargestStateBytes(const std::vector<KvSpec>& layers) {
  size_t largest = 0;
  for (const KvSpec& layer : layers) {
    size_t bytes = 0;
    for (const StateSpec& array : layer.state) bytes += array.units * AlignUp(array.unit_bytes);
    largest = std::max(largest, bytes);
  }
  return largest;
}

}  // namespace

int64_t KvBlocksOf(int64_t slots) { return (slots + kBlockTokens - 1) / kBlockTokens; }

KvLayout MakeKvLayout(const std::vector<KvSpec>& layers) {
  const std::vector<SpecLayers> specs = CountSpecs(layers);
  KvLayout layout;
  layout.block_bytes = specs.empty() ? LargestStateBytes(layers)
                                     : ChooseBlockBytes(specs, MinStateBlockBytes(layers));
  StateLayout state = LayOutState(layers, layout.block_bytes);
  layout.state_parts = state.parts;
  layout.view.states = std::move(state.arrays);
  layout.view.layers.resize(layers.size());
  layout.view.group_of_layer.resize(layers.size(), -1);
  for (const SpecLayers& one : specs) {
    const int64_t groups = one.GroupsIn(layout.block_bytes);
    const int64_t per_group = (one.layers + groups - 1) / groups;
    int64_t place = 0;  // index of the layer among the layers with this spec
    for (size_t i = 0; i < layers.size(); ++i) {
      if (!(layers[i] == one.spec)) continue;
      if (place % per_group == 0) layout.specs.push_back(one.spec);
      kernels::KvLayer& layer = layout.view.layers[i];
      layer.dtype = one.spec.dtype;
      layer.kv_heads = one.spec.kv_heads;
      layer.k_dim = one.spec.k_dim;
      layer.v_dim = one.spec.v_dim;
      layer.values_in_keys = one.spec.values_in_keys;
      layer.block_bytes = layout.block_bytes;
      layer.k_offset = place % per_group * one.bytes();
      layer.v_offset =
          layer.k_offset +
          AlignUp(one.spec.kv_heads * kernels::KvHeadBytes(one.spec.dtype, one.spec.k_dim));
      layout.view.group_of_layer[i] = static_cast<int>(layout.specs.size()) - 1;
      ++place;
    }
  }
  return layout;
}

int64_t KvBlocksFor(const KvSpec& spec, int64_t slots, int64_t step) {
  const int64_t blocks = KvBlocksOf(slots);
  if (spec.kind == KvKind::kFull) return blocks;
  // A sequence holds the tail of the last boundary. After this boundary, it holds less than one
  // block of computed rows, plus the rows of the step.
  return std::min(blocks, KvBlocksOf(spec.window - 1) + KvBlocksOf(kBlockTokens - 1 + step));
}

int64_t KvBlocksFor(const KvLayout& layout, int64_t slots, int64_t step) {
  int64_t blocks = kStatesPerSequence * layout.state_parts;
  for (const KvSpec& spec : layout.specs) blocks += KvBlocksFor(spec, slots, step);
  return blocks;
}

int64_t KvBlocksIn(size_t memory_bytes, const KvLayout& layout) {
  return std::min<int64_t>(memory_bytes / layout.block_bytes, std::numeric_limits<int32_t>::max());
}

int64_t KvCapacityTokens(const std::vector<KvSpec>& layers, size_t memory_bytes, int64_t step) {
  constexpr int64_t kMaxTokens = int64_t{1} << 32;
  const KvLayout layout = MakeKvLayout(layers);
  const int64_t total = KvBlocksIn(memory_bytes, layout);
  int64_t fitting = 0;  // number of blocks of tokens that fit
  int64_t too_many = kMaxTokens / kBlockTokens;
  while (too_many - fitting > 1) {
    const int64_t blocks = fitting + (too_many - fitting) / 2;
    const int64_t needed = KvBlocksFor(layout, blocks * kBlockTokens, step);
    (needed <= total ? fitting : too_many) = blocks;
  }
  return fitting * kBlockTokens;
}

KvCost KvCostOf(const std::vector<KvSpec>& layers) {
  const KvLayout layout = MakeKvLayout(layers);
  const auto bytes = static_cast<int64_t>(layout.block_bytes);
  KvCost cost = {.state_bytes = layout.state_parts * bytes};
  for (const KvSpec& spec : layout.specs) {
    if (spec.kind == KvKind::kFull) {
      cost.bytes_per_token += bytes / kBlockTokens;
    } else {
      cost.window_bytes += KvBlocksOf(spec.window) * bytes;
    }
  }
  return cost;
}

int64_t KvBlockBytes(const std::vector<KvSpec>& layers) {
  return static_cast<int64_t>(MakeKvLayout(layers).block_bytes);
}

}  // namespace tidepool::engine
