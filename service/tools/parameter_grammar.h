// EmitParameters: the grammar of a call's arguments in the formats that write parameters one after
// the other (ArgumentForm::kParameters and kPython).
#ifndef TIDEPOOL_SERVICE_TOOLS_PARAMETER_GRAMMAR_H_
#define TIDEPOOL_SERVICE_TOOLS_PARAMETER_GRAMMAR_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/output_regions.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {

// Adds the arguments that match `schema` to a grammar. The grammar allows only the parameters that
// the schema names, in the order of the schema. Without a schema (""), it allows any parameters.
// Their values are text. In Python, and in formats that say how a value is written, they may have
// any type. Returns INVALID_ARGUMENT with the keyword if the schema has conditions on the object as
// a whole, or if it cannot be enforced.
//
// The response parser reads a value as text if its schema has no other type than string. If the
// schema also allows other types, the parser reads a value as text only if the value has none of
// these types. So here, a string begins with a letter if other types are allowed, and is not a word
// such as null. Python's values are written as JSON, which the parser accepts, too.
absl::StatusOr<engine::grammar::Expr> EmitParameters(const ToolFormat& format,
                                                     absl::string_view schema,
                                                     const engine::grammar::ResponseTexts& texts,
                                                     engine::grammar::GrammarIr* ir);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_PARAMETER_GRAMMAR_H_
