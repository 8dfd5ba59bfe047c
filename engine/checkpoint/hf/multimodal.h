// Checks the configuration of the text model inside a multimodal checkpoint. `outer` is the whole
// config.json, and `text` is its text_config. Implementation detail of config.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_MULTIMODAL_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_MULTIMODAL_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

inline constexpr char kTie[] = "tie_word_embeddings";

// Returns whether the model is valid without an output weight. The key is in one of the two
// objects, or in none, and its default depends on the class of the model.
absl::StatusOr<bool> MayBeTied(const JsonMembers& outer, const JsonMembers& text);

// Returns UNIMPLEMENTED if a key of `text` scales the logits of the text model, but transformers
// does not use it in the multimodal model.
absl::Status CheckLogits(const JsonMembers& outer, const JsonMembers& text);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_MULTIMODAL_H_
