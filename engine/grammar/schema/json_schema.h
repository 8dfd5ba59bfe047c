// Compiles JSON schemas (draft 2020-12, and the older drafts from 4 on where they agree).
//
// The grammar accepts exactly the JSON texts whose value is valid, with these limits on the form of
// the text. Properties come in the order of "properties", then of "required", then the others.
// Between two tokens there is at most one space, or a line break with up to 20 blanks. A number
// with a constraint has no exponent, and an integer has no point. A constrained string escapes only
// what must be escaped; characters outside ASCII may also be escaped.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_JSON_SCHEMA_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_JSON_SCHEMA_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/schema/schema_normalizer.h"

namespace tidepool::engine::grammar {

struct JsonSchemaOptions {
  // A regular expression for the text between two tokens; empty: as above. It may only match
  // blanks, tabs and line breaks, and not endlessly many.
  std::string whitespace_pattern;
  OneOf one_of = OneOf::kExact;
  GrammarLimits limits;
};

// Returns INVALID_ARGUMENT, with the JSON pointer, the keyword, the reason and a remedy, if the
// schema is not valid, or cannot be enforced exactly, or is over a limit, or if no value is valid.
absl::StatusOr<GrammarIr> CompileJsonSchema(absl::string_view schema,
                                            const JsonSchemaOptions& options);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_JSON_SCHEMA_H_
