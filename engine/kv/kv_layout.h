// KvLayout: how the KV of a model's layers is divided among blocks.
#ifndef TIDEPOOL_ENGINE_KV_KV_LAYOUT_H_
#define TIDEPOOL_ENGINE_KV_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/kv_spec.h"

namespace tidepool::engine {

struct KvLayout {
  std::vector<KvSpec> specs;  // by group
  KvView view;                // without the arena's address
  size_t block_bytes = 0;     // of every group
};

// Distributes the layers of each spec evenly over groups whose blocks have about the same size, and
// places the layers of a group one after the other. Requires: layers is not empty.
KvLayout MakeKvLayout(const std::vector<KvSpec>& layers);

// Number of blocks with `slots` slots.
int64_t KvBlocksOf(int64_t slots);

// Number of blocks that fit into a cache of `memory_bytes`.
int64_t KvBlocksIn(size_t memory_bytes, const KvLayout& layout);

// Maximum number of blocks of a group that one sequence holds while `slots` slots are computed,
// with at most `step` rows per step.
int64_t KvBlocksFor(const KvSpec& spec, int64_t slots, int64_t step);

// Number of tokens of a single sequence that fit into a cache of `memory_bytes`, if at most `step`
// rows are computed per step. Requires: layers is not empty.
int64_t KvCapacityTokens(const std::vector<KvSpec>& layers, size_t memory_bytes, int64_t step);

// The memory of a sequence's KV.
struct KvCost {
  int64_t bytes_per_token = 0;  // of layers without a window
  int64_t window_bytes = 0;     // of full windows, of all layers that have one
};
KvCost KvCostOf(const std::vector<KvSpec>& layers);

// Bytes of one block of such a cache.
int64_t KvBlockBytes(const std::vector<KvSpec>& layers);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_LAYOUT_H_
