// Converts tokenizer.json, the format of Hugging Face's tokenizers package, to GGUF metadata.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_TOKENIZER_JSON_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_TOKENIZER_JSON_H_

#include <string>

#include "absl/status/status.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/config.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

// Settings from the other files of the directory.
struct TokenizerFiles {
  std::string config_path;               // path of tokenizer_config.json
  const Json* config = nullptr;          // JSON null if there is no such file
  const ConfigTokens* tokens = nullptr;  // from config.json and generation_config.json
};

// Sets tokenizer.ggml.*. Every error names the file and the key. Returns INVALID_ARGUMENT if the
// content is invalid. Returns UNIMPLEMENTED for an unsupported step or option that changes ids.
absl::Status ReadTokenizerJson(const std::string& path, const Json& tokenizer,
                               const TokenizerFiles& files, GgufMetadata* metadata);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_TOKENIZER_JSON_H_
