#include "engine/model/state_layout.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/tensor.h"

namespace tidepool::engine {
namespace {

size_t AlignUp(size_t bytes) {
  return (bytes + kernels::kAlignment - 1) / kernels::kAlignment * kernels::kAlignment;
}

}  // namespace

size_t MinStateBlockBytes(const std::vector<KvSpec>& layers) {
  size_t bytes = 0;
  for (const KvSpec& layer : layers) {
    for (const StateSpec& array : layer.state) bytes = std::max(bytes, AlignUp(array.unit_bytes));
  }
  return bytes;
}

// The largest units are placed first, so that small ones fill the gaps.
StateLayout LayOutState(const std::vector<KvSpec>& layers, size_t block_bytes) {
  StateLayout layout;
  layout.arrays.resize(layers.size());
  std::vector<kernels::StateArray*> arrays;
  for (size_t i = 0; i < layers.size(); ++i) {
    const bool has_state = layers[i].kind == KvKind::kState;
    CHECK(has_state != layers[i].state.empty()) << "layer " << i;
    for (const StateSpec& spec : layers[i].state) {
      CHECK(spec.units > 0 && spec.unit_bytes > 0) << "a state of layer " << i << " is empty";
      kernels::StateArray& array = layout.arrays[i].emplace_back();
      array.block_bytes = block_bytes;
      array.unit_bytes = spec.unit_bytes;
      array.units.resize(spec.units);
    }
    for (kernels::StateArray& array : layout.arrays[i]) arrays.push_back(&array);
  }
  std::stable_sort(arrays.begin(), arrays.end(),
                   [](const auto* a, const auto* b) { return a->unit_bytes > b->unit_bytes; });
  std::vector<size_t> used;  // for each part: bytes
  for (kernels::StateArray* array : arrays) {
    const size_t bytes = AlignUp(array->unit_bytes);
    CHECK_LE(bytes, block_bytes);
    size_t part = 0;
    for (kernels::StateUnit& unit : array->units) {
      while (part < used.size() && used[part] + bytes > block_bytes) ++part;
      if (part == used.size()) used.push_back(0);
      unit = {.part = static_cast<int32_t>(part), .offset = used[part]};
      used[part] += bytes;
    }
  }
  layout.parts = static_cast<int64_t>(used.size());
  return layout;
}

}  // namespace tidepool::engine
