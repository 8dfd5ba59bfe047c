// Converts between JSON and template values.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_JSON_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_JSON_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/value.h"
#include "nlohmann/json.hpp"

namespace tidepool::engine::jinja {

// Converts JSON to a value. All strings and keys have the origin kUser. Returns INVALID_ARGUMENT if
// `json` is nested deeper than 100 levels, or contains invalid UTF-8 or an integer that does not
// fit into 64 signed bits. Error messages call the JSON `what`.
absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json, absl::string_view what);

struct JsonStyle {
  // text of one level of indentation; unset: everything on one line
  std::optional<std::string> indent;
  bool ascii = false;  // whether to escape characters outside of ASCII
  bool sort_keys = false;
  std::optional<std::string> item_separator;  // if unset, Python's default
  std::optional<std::string> key_separator;
};

// Writes a value like Python's json.dumps. If any string in `value` has the origin kUser, the
// result also has this origin. Returns INVALID_ARGUMENT if JSON cannot represent a value, and
// RESOURCE_EXHAUSTED if the budget is exceeded.
absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Budget* budget);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_JSON_H_
