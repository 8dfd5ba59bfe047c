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

// All strings and keys of `json` count as the user's. INVALID_ARGUMENT if it is nested deeper than
// 100, or contains an integer outside 64 signed bits or invalid UTF-8. Messages use `what` as its
// name.
absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json, absl::string_view what);

struct JsonStyle {
  std::optional<std::string> indent;  // one level; unset: all on one line
  bool ascii = false;                 // escape characters outside ASCII
  bool sort_keys = false;
  std::optional<std::string> item_separator;  // unset: Python's default
  std::optional<std::string> key_separator;
};

// Writes a value like Python's json.dumps. The result counts as the user's if any string in `value`
// does. INVALID_ARGUMENT if JSON cannot represent a value, RESOURCE_EXHAUSTED if the budget is
// exceeded.
absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Budget* budget);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_JSON_H_
