// KvLayout: how the KV of a model's layers is divided into blocks.
#ifndef TIDEPOOL_ENGINE_KV_KV_LAYOUT_H_
#define TIDEPOOL_ENGINE_KV_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/kv_spec.h"

namespace tidepool::engine {

struct KvLayout {
  std::vector<KvSpec> specs;  // one for each group
  KvView view;                // the arena's address is not set
  size_t block_bytes = 0;     // bytes of a block, which are the same for every group
  int64_t state_parts = 0;    // blocks of a recurrent state; 0 if the model has none
};

// Number of recurrent states of a running sequence: the state that a pass reads, the state that it
// writes, and the checkpoint at the last boundary between two blocks. The checkpoint is only needed
// to compute less later, so it is not held: it may be evicted.
inline constexpr int64_t kStatesPerSequence = 3;

// Distributes the layers of each spec evenly over groups whose blocks have about the same size. The
// layers of a group are placed one after the other. The units of recurrent states are placed in
// blocks of the same size. Requires: `layers` is not empty.
KvLayout MakeKvLayout(const std::vector<KvSpec>& layers);

// Number of blocks needed for `slots` slots, rounded up.
int64_t KvBlocksOf(int64_t slots);

// Number of blocks that fit into a cache of `memory_bytes`.
int64_t KvBlocksIn(size_t memory_bytes, const KvLayout& layout);

// Maximum number of blocks of a group that one sequence holds while `slots` slots are computed, if
// a step has at most `step` rows of the sequence.
int64_t KvBlocksFor(const KvSpec& spec, int64_t slots, int64_t step);
// The same for all groups together. Includes kStatesPerSequence recurrent states.
int64_t KvBlocksFor(const KvLayout& layout, int64_t slots, int64_t step);

// Number of tokens that a single sequence can have in a cache of `memory_bytes`, if a step has at
// most `step` rows of the sequence. Requires: `layers` is not empty.
int64_t KvCapacityTokens(const std::vector<KvSpec>& layers, size_t memory_bytes, int64_t step);

// The memory that the KV of a sequence needs.
struct KvCost {
  int64_t bytes_per_token = 0;  // for all layers without a window
  int64_t window_bytes = 0;     // for all layers with a window, when the windows are full
  // One recurrent state of all layers. A checkpoint needs this memory, and a running sequence
  // needs kStatesPerSequence times as much.
  int64_t state_bytes = 0;
};
KvCost KvCostOf(const std::vector<KvSpec>& layers);

// Bytes of one block of a cache for these layers.
int64_t KvBlockBytes(const std::vector<KvSpec>& layers);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_KV_KV_LAYOUT_H_
