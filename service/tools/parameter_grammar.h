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

// Adds the arguments that match `schema` to a grammar. There are only the parameters that the
// schema names, in its order. Without a schema (""), there are any parameters, which are text
// (unless the format says how a value is written). Returns INVALID_ARGUMENT with the
// keyword if the schema has conditions on the object as a whole, or if it cannot be enforced.
//
// The response parser reads a value as text if its schema has no other type than string. Of a value
// that can also have another type, it reads as text what has none of these types. So a string of
// such a value begins with a letter here, and is not a word such as null. Python's values are
// written as JSON, which the parser accepts, too.
absl::StatusOr<engine::grammar::Expr> EmitParameters(const ToolFormat& format,
                                                     absl::string_view schema,
                                                     const engine::grammar::ResponseTexts& texts,
                                                     engine::grammar::GrammarIr* ir);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_PARAMETER_GRAMMAR_H_
