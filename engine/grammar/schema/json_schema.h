// Compiles JSON schemas (draft 2020-12, and the older drafts from 4 on where they agree).
//
// The grammar accepts exactly the JSON texts whose value is valid, with these limits on the form of
// the text. Properties come in the order of "properties", then of "required", then the others.
// Between two tokens there is at most one space, or a line break with up to 20 blanks. A number
// with a constraint has no exponent, and an integer has no point. A constrained string escapes only
// what must be escaped; characters outside ASCII may also be escaped.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_JSON_SCHEMA_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_JSON_SCHEMA_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/schema/schema_normalizer.h"

namespace tidepool::engine::grammar {

// Which values may match, besides those that the schema refuses.
enum class RootValue : uint8_t { kAny, kObject, kNoString };

struct JsonSchemaOptions {
  // A regular expression for the text between two tokens; empty: as above. It may only match
  // blanks, tabs and line breaks, and not endlessly many.
  std::string whitespace_pattern;
  OneOf one_of = OneOf::kExact;
  RootValue root = RootValue::kAny;
  // The JSON pointer of the subschema that the value matches; empty: the whole schema.
  std::string pointer;
};

// Returns INVALID_ARGUMENT, with the JSON pointer, the keyword, the reason and a remedy, if the
// schema is not valid, or cannot be enforced exactly, or is over a limit, or if no value is valid.
absl::StatusOr<GrammarIr> CompileJsonSchema(absl::string_view schema,
                                            const JsonSchemaOptions& options,
                                            const GrammarLimits& limits = {});

// Adds the JSON texts of a schema's values to a grammar, and returns them as an expression. Returns
// the errors of CompileJsonSchema, except that it does not notice if no value is valid. Then the
// expression is not productive when the grammar is finished.
absl::StatusOr<Expr> EmitJsonSchema(absl::string_view schema, const JsonSchemaOptions& options,
                                    GrammarIr* ir);

// Returns the values of the schema that are strings, as text without quotation marks and escapes.
// Returns the errors of EmitJsonSchema.
absl::StatusOr<Regex> StringValues(absl::string_view schema, const JsonSchemaOptions& options,
                                   RegexPool* pool);

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_JSON_SCHEMA_H_
