// JSON in and out of template values.
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

// All strings and keys of `json` count as the user's. INVALID_ARGUMENT: nested deeper than 100, an
// integer outside 64 bits signed, a string that is not UTF-8. `what` names it in messages.
absl::StatusOr<Value> FromJson(const nlohmann::ordered_json& json, absl::string_view what);

struct JsonStyle {
  std::optional<std::string> indent;  // one level; unset: all on one line
  bool ascii = false;                 // escape what is not ASCII
  bool sort_keys = false;
  std::optional<std::string> item_separator;  // unset: Python's own
  std::optional<std::string> key_separator;
};

// As Python's json.dumps writes it. The result counts as the user's if any string in `value` does.
// INVALID_ARGUMENT: a value that JSON cannot say; RESOURCE_EXHAUSTED past the budget.
absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Budget* budget);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_JSON_H_
