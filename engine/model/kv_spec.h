// The KV settings of a layer, and a view of the memory with the KV of all layers. Layers without
// attention have a recurrent state instead of KV.
#ifndef TIDEPOOL_ENGINE_MODEL_KV_SPEC_H_
#define TIDEPOOL_ENGINE_MODEL_KV_SPEC_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"
#include "kernels/recurrent_state.h"

namespace tidepool::engine {

enum class KvKind : uint8_t {
  kFull,    // KV of every token
  kWindow,  // KV of the last `window` tokens
  kState,   // no KV, but a recurrent state of constant size
};

// An array of a layer's recurrent state. A unit is never divided between two blocks.
struct StateSpec {
  int64_t units = 0;
  int64_t unit_bytes = 0;

  friend bool operator==(const StateSpec&, const StateSpec&) = default;
};

// The KV settings of one layer. The KvCache divides layers with equal settings into groups. Each
// group has its own block table.
struct KvSpec {
  KvKind kind = KvKind::kFull;
  int64_t window = 0;
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  kernels::DType dtype = kernels::DType::kF16;
  bool values_in_keys = false;  // explained at kernels::KvLayer
  // The arrays of a kState layer. Layers of other kinds have none.
  std::vector<StateSpec> state;

  friend bool operator==(const KvSpec&, const KvSpec&) = default;
};

// The addresses of each layer's KV and state. The KvCache owns the memory.
struct KvView {
  std::vector<kernels::KvLayer> layers;  // one for each layer of the model
  // For each layer: its index into RowSpan::blocks. -1 if the layer has no KV.
  std::vector<int> group_of_layer;
  // For each layer: the arrays of its recurrent state, in the order of KvSpec::state.
  std::vector<std::vector<kernels::StateArray>> states;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_KV_SPEC_H_
