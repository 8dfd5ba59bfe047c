// Sets of Unicode code points, for the classes of regular expressions and of GBNF.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_CODE_POINTS_H_
#define TIDEPOOL_ENGINE_GRAMMAR_CODE_POINTS_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/grammar/regex_pool.h"

namespace tidepool::engine::grammar {

using CodePointSet = std::vector<CodePoints>;

// Returns all code points that are not in `set`.
CodePointSet Complement(CodePointSet set);

// Returns the set of \d, \w or \s, or of their complements \D, \W or \S. Returns nullopt for any
// other letter.
std::optional<CodePointSet> ClassOfLetter(char letter);

// Returns the characters with the general category of this name: short, such as "Lu" or "L", or
// long, such as "Uppercase_Letter", with or without "General_Category=". Returns nullopt for any
// other name.
std::optional<CodePointSet> ClassOfCategory(absl::string_view name);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_CODE_POINTS_H_
