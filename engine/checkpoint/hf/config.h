// config.json and generation_config.json as GGUF metadata.
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

// Special tokens that config.json and generation_config.json name; a model may end with any of
// several.
struct ConfigTokens {
  std::vector<int64_t> bos;  // at most one
  // Whether that counts where tokenizer_config.json names no BOS.
  bool bos_by_id = false;
  std::vector<int64_t> eos;
  std::vector<int64_t> padding;
};

// Sets general.architecture and the keys under it. Every error names file and key: INVALID_ARGUMENT
// where a key is missing or wrong; UNIMPLEMENTED for a model_type, or a value, that is not
// supported, and for a key that is not known and may change results.
absl::StatusOr<HfModel> ReadConfig(const std::string& path, const Json& config,
                                   GgufMetadata* metadata);

// Sets general.sampling.*. Errors as ReadConfig.
absl::Status ReadGenerationConfig(const std::string& path, const Json& config,
                                  GgufMetadata* metadata);

// Reads the ids of special tokens in either file. INVALID_ARGUMENT: one is not an integer.
absl::Status ReadTokenIds(const std::string& path, const Json& config, ConfigTokens* tokens);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_CONFIG_H_
