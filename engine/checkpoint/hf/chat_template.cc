#include "engine/checkpoint/hf/chat_template.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::hf {
namespace {

constexpr absl::string_view kKey = "tokenizer.chat_template";

absl::Status ReadList(const JsonMembers& config, const Json& list, GgufMetadata* metadata) {
  for (const Json& entry : list) {
    const auto name = entry.is_object() ? entry.find("name") : entry.end();
    const auto text = entry.is_object() ? entry.find("template") : entry.end();
    const bool whole = entry.is_object() && name != entry.end() && name->is_string() &&
                       text != entry.end() && text->is_string();
    if (!whole) {
      return config.Error("chat_template", absl::StrCat(Shown(entry),
                                                        ", expected {\"name\": ..., "
                                                        "\"template\": ...}"));
    }
    const bool is_default = *name == "default";
    metadata->SetString(
        is_default ? std::string(kKey) : absl::StrCat(kKey, ".", name->get<std::string>()),
        text->get<std::string>());
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadChatTemplate(const std::string& path, const Json& tokenizer_config,
                              absl::string_view file, GgufMetadata* metadata) {
  const Json none = Json::object();
  const JsonMembers config(path, tokenizer_config.is_null() ? none : tokenizer_config);
  const Json* value = config.Find("chat_template");
  if (value != nullptr && value->is_array()) {
    RETURN_IF_ERROR(ReadList(config, *value, metadata));
  } else if (value != nullptr) {
    ASSIGN_OR_RETURN(const std::string text, config.String("chat_template"));
    metadata->SetString(kKey, text);
  }
  // The file has precedence over the template in tokenizer_config.json.
  if (!file.empty()) metadata->SetString(kKey, file);
  return absl::OkStatus();
}

}  // namespace tidepool::engine::hf
