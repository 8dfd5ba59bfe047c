// Finds and checks the configuration of the text model inside a multimodal checkpoint. `outer` is
// the whole config.json, and `text` is its text_config with the defaults of the family.
// Implementation detail of config.cc.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_MULTIMODAL_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_MULTIMODAL_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

inline constexpr char kTie[] = "tie_word_embeddings";

// The settings of the text model in a config.json.
struct TextConfig {
  Json config;
  // "text_config.", or empty if the settings are not inside text_config
  std::string prefix;
  std::string model_type;  // that of the text model
  bool nested = false;     // the text model is a part of a multimodal model
};
// Finds the settings of the text model. In the published Qwen2-VL and Qwen2.5-VL, they are not
// inside text_config, but next to the settings of the vision model.
absl::StatusOr<TextConfig> FindTextConfig(const std::string& path, const Json& config);

// Returns whether the model is valid without an output weight. tie_word_embeddings is in one of the
// two objects, or in none.
absl::StatusOr<bool> MayBeTied(const JsonMembers& outer, const JsonMembers& text);

// Returns UNIMPLEMENTED if the text model does not give the logits of the multimodal model. This is
// the case if a key of `text` scales the logits, but transformers does not use it in multimodal
// models.
absl::Status CheckMultimodal(const JsonMembers& outer, const JsonMembers& text);

// Writes the number of layers after which Qwen3-VL adds features of images. Tidepool does not
// support images, but other programs that read a GGUF made from the directory may support them.
void WriteImageLayers(const Json& config, const HfFamily& family, GgufMetadata* metadata);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_MULTIMODAL_H_
