// The KV settings of a layer, and a view of the memory with the KV of all layers.
#ifndef TIDEPOOL_ENGINE_MODEL_KV_SPEC_H_
#define TIDEPOOL_ENGINE_MODEL_KV_SPEC_H_

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace tidepool::engine {

enum class KvKind : uint8_t {
  kFull,    // KV of every token
  kWindow,  // KV of the last `window` tokens
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

  friend bool operator==(const KvSpec&, const KvSpec&) = default;
};

// The addresses of each layer's KV. The KvCache owns the memory.
struct KvView {
  std::vector<kernels::KvLayer> layers;  // one for each layer of the model
  std::vector<int> group_of_layer;       // for each layer: its index into RowSpan::blocks
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_KV_SPEC_H_
