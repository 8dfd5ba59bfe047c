// One value as Python formats it: what "%5.1f" and "{:>8}" have in common.
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
  char align = 0;  // '<', '>', '^', '=' (blanks behind the sign); 0: the type's own
  Text fill = Text(" ", TextOrigin::kTemplate);
  char sign = 0;  // '+', ' '; 0: only of negative numbers
  bool alternate = false;
  char grouping = 0;  // ',', '_'; 0: none
  int64_t width = 0;
  std::optional<int64_t> precision;  // at most kMaxPrecision
  char type = 0;                     // 0: the value's own
};
inline constexpr int64_t kMaxPrecision = 1000;

// A number for one of the types b, d, o, x, X, e, E, f, F, g, G, %; 0 for the value's own.
// INVALID_ARGUMENT: a type that does not fit the value.
absl::StatusOr<Value> FormatNumber(const Value& number, const FormatSpec& spec, Budget* budget);
// A string, cut and padded.
absl::StatusOr<Value> FormatText(const Text& text, const FormatSpec& spec, Budget* budget);

}  // namespace tidepool::engine::jinja

#endif  // TIDEPOOL_ENGINE_CHAT_TEMPLATE_JINJA_FORMAT_H_
