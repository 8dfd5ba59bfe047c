// StateLayout: how the recurrent state of one sequence is divided into blocks.
#ifndef TIDEPOOL_ENGINE_MODEL_STATE_LAYOUT_H_
#define TIDEPOOL_ENGINE_MODEL_STATE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/model/kv_spec.h"
#include "kernels/recurrent_state.h"

namespace tidepool::engine {

// A state consists of blocks, which are called its parts. All arrays of all layers share the parts.
struct StateLayout {
  int64_t parts = 0;  // 0 if no layer has a state
  // [layer][array], as in KvView::states. The arena's address is not set.
  std::vector<std::vector<kernels::StateArray>> arrays;
};

// The smallest block that can hold a unit of each array. 0 if no layer has a state.
size_t MinStateBlockBytes(const std::vector<KvSpec>& layers);

// Divides the state into blocks of `block_bytes`. Requires: block_bytes is a multiple of
// kernels::kAlignment and at least MinStateBlockBytes.
StateLayout LayOutState(const std::vector<KvSpec>& layers, size_t block_bytes);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_STATE_LAYOUT_H_
