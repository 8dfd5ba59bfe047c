// The formats of JSON Schema as regular expressions over the values of strings.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_STRING_FORMATS_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_STRING_FORMATS_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/grammar/regex_pool.h"

namespace tidepool::engine::grammar {

// Returns nullopt for a format that is not known.
std::optional<Regex> FormatRegex(absl::string_view format, RegexPool* pool);

// Returns the names of the known formats, for messages.
std::string KnownFormats();

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_STRING_FORMATS_H_
