// Compiles JSON schemas (draft 2020-12, and the older drafts from 4 on where they agree). Decides
// the whitespace between the tokens of a JSON text.
//
// The grammar accepts exactly the JSON texts whose value is valid, with these limits on the form of
// the text. Properties come in the order of "properties", then of "required", then the others.
// Between two tokens there is at most one space, or a line break with up to 20 blanks. A number
// with a constraint has no exponent, and an integer has no point. A constrained string escapes only
// what must be escaped; characters outside ASCII may also be escaped.
#ifndef TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_JSON_SCHEMA_H_
#define TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_JSON_SCHEMA_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/schema/schema_normalizer.h"

namespace tidepool::engine::grammar {

// Which values may match: all values that the schema allows, only objects, or all except strings.
enum class RootValue : uint8_t { kAny, kObject, kNoString };

struct JsonSchemaOptions {
  // A regular expression for the text between two tokens; empty: as described above. It may only
  // match a limited number of blanks, tabs and line breaks.
  std::string whitespace_pattern;
  OneOf one_of = OneOf::kExact;
  RootValue root = RootValue::kAny;
};

// Returns INVALID_ARGUMENT, with the JSON pointer, the keyword, the reason and a remedy, if the
// schema is not valid, or cannot be enforced exactly, or is over a limit, or if no value is valid.
absl::StatusOr<GrammarIr> CompileJsonSchema(absl::string_view schema,
                                            const JsonSchemaOptions& options,
                                            const GrammarLimits& limits = {});

// Adds the JSON texts of a schema's values to a grammar, and returns them as an expression. Returns
// the errors of CompileJsonSchema, except that it does not detect that no value is valid.
// GrammarIr::Finish detects this, because the expression then matches no text.
absl::StatusOr<Expr> EmitJsonSchema(absl::string_view schema, const JsonSchemaOptions& options,
                                    GrammarIr* ir);

// Adds the values of several subschemas of one schema to a grammar. Their numbers have at most 100
// digits before and after the point, and an exponent of at most two digits, so that every parser of
// JSON can read them. Thread-compatible.
class SubschemaEmitter {
 public:
  // `ir` must outlive the emitter. Returns INVALID_ARGUMENT if the schema is not valid as a whole.
  static absl::StatusOr<std::unique_ptr<SubschemaEmitter>> Create(absl::string_view schema,
                                                                  GrammarIr* ir);
  virtual ~SubschemaEmitter() = default;

  // Returns the JSON texts of the values that the schema at `pointer` allows. Returns the errors of
  // EmitJsonSchema.
  virtual absl::StatusOr<Expr> Emit(const std::string& pointer, RootValue root) = 0;
  // Returns the values of the schema at `pointer` that are strings, as text without quotation marks
  // and escapes.
  virtual absl::StatusOr<Regex> Strings(const std::string& pointer) = 0;
};

}  // namespace tidepool::engine::grammar

#endif  // TIDEPOOL_ENGINE_GRAMMAR_SCHEMA_JSON_SCHEMA_H_
