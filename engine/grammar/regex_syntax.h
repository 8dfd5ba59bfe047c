// The syntax tree of a regular expression. ParseRegex builds the expression from this tree.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_REGEX_SYNTAX_H_
#define TIDEPOOL_ENGINE_GRAMMAR_REGEX_SYNTAX_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/code_points.h"

namespace tidepool::engine::grammar {

struct RegexNode {
  enum class Kind : uint8_t {
    kEmpty,
    kSet,
    kConcat,
    kOr,
    kRepeat,
    kStart,     // ^
    kEnd,       // $
    kAhead,     // (?=...)
    kNotAhead,  // (?!...)
  };
  Kind kind = Kind::kEmpty;
  CodePointSet set;           // only for kSet
  std::vector<int32_t> kids;  // numbers of the child nodes
  int32_t min = 0;            // only for kRepeat
  int32_t max = 0;
  bool asserts = false;    // contains ^, $ or look-ahead
  bool has_start = false;  // contains ^
};

struct RegexSyntax {
  std::vector<RegexNode> nodes;
  int32_t root = 0;
};

enum class LookAhead : uint8_t { kAllowed, kRefused };

// Returns the errors of ParseRegex.
absl::StatusOr<RegexSyntax> ParseRegexSyntax(absl::string_view pattern, LookAhead ahead);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_REGEX_SYNTAX_H_
