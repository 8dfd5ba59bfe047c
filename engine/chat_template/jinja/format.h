// Formats one value as Python does. Both "%5.1f" and "{:>8}" use it.
#ifndef TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_FORMAT_H_
#define TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_FORMAT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/chat_template/jinja/functions.h"
#include "engine/chat_template/jinja/text.h"
#include "engine/chat_template/jinja/value.h"

namespace tidepool::engine::jinja {

struct FormatSpec {
  char align = 0;  // '<', '>', '^', '=' (fill after the sign); 0: the default of the value's type
  Text fill = Text(" ", TextOrigin::kTemplate);
  char sign = 0;  // '+' or ' '; 0: only negative numbers have a sign
  bool alternate = false;
  char grouping = 0;  // ',' or '_'; 0: no grouping
  int64_t width = 0;
  std::optional<int64_t> precision;  // at most kMaxPrecision
  char type = 0;                     // 0: the default of the value
};
inline constexpr int64_t kMaxPrecision = 1000;

// Formats a number as one of the types b, d, o, x, X, e, E, f, F, g, G, %. Type 0 means the default
// of the value. Returns INVALID_ARGUMENT if the type does not fit the value.
absl::StatusOr<Value> FormatNumber(const Value& number, const FormatSpec& spec, Budget* budget);
// Formats a string: truncates it to the precision and pads it to the width.
absl::StatusOr<Value> FormatText(const Text& text, const FormatSpec& spec, Budget* budget);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_FORMAT_H_
