// Changes a config.json for a test.
#ifndef TIDEPOOL_TESTS_ENGINE_CHECKPOINT_HF_EDIT_CONFIG_H_
#define TIDEPOOL_TESTS_ENGINE_CHECKPOINT_HF_EDIT_CONFIG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/checkpoint/hf/json_file.h"

namespace tidepool::engine::hf {

// Sets the keys of `edit`, an object as text. A key with "remove" is removed. A name that begins
// with "text_config." is a key of text_config.
inline void EditConfig(const std::string& edit, Json* config) {
  const Json edits = Json::parse(edit);
  for (const auto& [key, value] : edits.items()) {
    absl::string_view name = key;
    const bool inner = absl::ConsumePrefix(&name, "text_config.");
    Json& keys = inner ? (*config)["text_config"] : *config;
    if (value == "remove") {
      keys.erase(std::string(name));
    } else {
      keys[std::string(name)] = value;
    }
  }
}

}  // namespace tidepool::engine::hf

#endif  // TIDEPOOL_TESTS_ENGINE_CHECKPOINT_HF_EDIT_CONFIG_H_
