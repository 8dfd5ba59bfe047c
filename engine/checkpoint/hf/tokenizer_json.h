// tokenizer.json, the format of Hugging Face's tokenizers, as GGUF metadata.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_TOKENIZER_JSON_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_TOKENIZER_JSON_H_

#include <string>

#include "absl/status/status.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/config.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

// What stands beside the tokenizer.
struct TokenizerFiles {
  std::string config_path;               // of tokenizer_config.json
  const Json* config = nullptr;          // null inside: there is no such file
  const ConfigTokens* tokens = nullptr;  // of config.json and generation_config.json
};

// Sets tokenizer.ggml.*. Every error names the file and what in it: INVALID_ARGUMENT where it
// contradicts itself, UNIMPLEMENTED for a step or an option that changes ids and is not supported.
absl::Status ReadTokenizerJson(const std::string& path, const Json& tokenizer,
                               const TokenizerFiles& files, GgufMetadata* metadata);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_TOKENIZER_JSON_H_
