// Converts config.json and generation_config.json to GGUF metadata.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_CONFIG_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_CONFIG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/families.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

// The ids of special tokens in config.json and generation_config.json. A model may have several EOS
// tokens.
struct ConfigTokens {
  std::vector<int64_t> bos;  // at most one
  // Whether to use `bos` if tokenizer_config.json does not name a BOS token.
  bool bos_by_id = false;
  std::vector<int64_t> eos;
  std::vector<int64_t> padding;
};

// Sets general.architecture and the keys of that architecture. Every error names the file and the
// key. Returns INVALID_ARGUMENT if a key is missing or its value is invalid. Returns UNIMPLEMENTED
// for a model_type or a value that is not supported, and for an unknown key that may change
// results.
absl::StatusOr<HfModel> ReadConfig(const std::string& path, const Json& config,
                                   GgufMetadata* metadata);

// Sets the number of draft layers, which is known only from the tensors. Requires: ReadConfig
// returned the model.
void WriteDraftLayers(const HfModel& model, int64_t draft_layers, GgufMetadata* metadata);

// Sets general.sampling.*. Returns the same errors as ReadConfig.
absl::Status ReadGenerationConfig(const std::string& path, const Json& config,
                                  GgufMetadata* metadata);

// Reads the ids of special tokens from one of the two files. Returns INVALID_ARGUMENT if an id is
// not an integer.
absl::Status ReadTokenIds(const std::string& path, const Json& config, ConfigTokens* tokens);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_CONFIG_H_
