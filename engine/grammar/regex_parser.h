// Parses regular expressions in the syntax of ECMAScript and builds them in a RegexPool. A
// character is a code point, as with ECMAScript's flag u.
//
// Supported: alternatives, groups, classes, \d \w \s \p{category} and their complements,
// quantifiers (greedy and lazy ones match the same texts), ^ and $, and look-ahead where the caller
// allows it. Refused: back-references, look-behind, \b and \B, and assertions inside a repetition.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_REGEX_PARSER_H_
#define TIDEPOOL_ENGINE_GRAMMAR_REGEX_PARSER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/regex_pool.h"

namespace tidepool::engine::grammar {

inline constexpr size_t kMaxPatternBytes = 16 << 10;
inline constexpr int32_t kMaxRepeats = 100'000;

enum class RegexScope : uint8_t {
  kWhole,   // the expression matches the whole text; look-ahead is refused
  kSearch,  // a part of the text matches the expression, as in JSON Schema's "pattern"
};

// Returns INVALID_ARGUMENT if the pattern is wrong, is not supported or is too large. The message
// names the offset in bytes, the reason and the remedy.
absl::StatusOr<Regex> ParseRegex(absl::string_view pattern, RegexScope scope, RegexPool* pool);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_REGEX_PARSER_H_
