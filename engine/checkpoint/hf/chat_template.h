// Converts the chat templates of a Hugging Face directory to GGUF metadata.
#ifndef TIDEPOOL_ENGINE_CHECKPOINT_HF_CHAT_TEMPLATE_H_
#define TIDEPOOL_ENGINE_CHECKPOINT_HF_CHAT_TEMPLATE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

// Sets tokenizer.chat_template and tokenizer.chat_template.NAME. `file` is the content of
// chat_template.jinja; if it is not empty, it overrides the default template of
// tokenizer_config.json. Returns INVALID_ARGUMENT if the template in tokenizer_config.json is
// neither a string nor a list of {name, template}.
absl::Status ReadChatTemplate(const std::string& path, const Json& tokenizer_config,
                              absl::string_view file, GgufMetadata* metadata);

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_ENGINE_CHECKPOINT_HF_CHAT_TEMPLATE_H_
