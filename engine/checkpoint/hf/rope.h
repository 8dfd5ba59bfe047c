// Converts the rotary settings of a config.json to GGUF metadata. Implementation detail of
// config.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_ROPE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_ROPE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

// Reads rope_theta, partial_rotary_factor, either rope_parameters or rope_scaling, and which layers
// have RoPE. All of these settings are optional. Requires: head_dim, parts and sparse of the model
// are set.
absl::Status ReadHfRope(const JsonMembers& config, HfModel* model, GgufMetadata* metadata);

// Returns for each layer whether it has RoPE. Requires: sparse of the model is set.
absl::StatusOr<std::vector<bool>> RotatingLayers(const JsonMembers& config, const HfModel& model);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_ROPE_H_
