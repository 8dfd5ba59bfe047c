// Parts of ReadConfig: limits, experts, windows, and layers without attention. Implementation
// detail of config.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_CONFIG_PARTS_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_CONFIG_PARTS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

// Limits that are far above the values of real models. Each limit fits in an int, and the product
// of any two fits in 64 bits.
inline constexpr int64_t kMaxLayers = 4096;
inline constexpr int64_t kMaxHeads = 4096;
inline constexpr int64_t kMaxHeadDim = 4096;
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxVocabulary = 1 << 24;
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxContext = 1 << 30;

// Sets `experts`, `sparse` and the parts of the shared expert in `model`, and the metadata keys of
// the FFNs. Requires: `sparse` has one value for each layer.
absl::Status ReadExperts(const JsonMembers& config, HfModel* model, GgufMetadata* metadata);

// Sets `recurrent`, `delta` and `conv_width` in `model`, and the metadata keys of layers without
// attention. Requires: `recurrent` has one value for each layer, and kv_heads is set.
absl::Status ReadMixers(const JsonMembers& config, HfModel* model, GgufMetadata* metadata);

// Sets the key that says which layers of a model with delta nets have no attention. Draft layers
// have attention.
void WriteRecurrentLayers(const HfModel& model, int64_t draft_layers, GgufMetadata* metadata);

// Sets the metadata keys of sliding windows.
absl::Status ReadWindow(const JsonMembers& config, const HfModel& model, GgufMetadata* metadata);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_CONFIG_PARTS_H_
