// CallGrammar: the grammar of responses with tool calls, in the syntax of a family of models.
//
//   GrammarIr ir;
//   CallGrammar calls(*FormatOf(v1::TOOL_CALL_TAGS), rules, &texts, &ir);
//   ASSIGN_OR_RETURN(const Expr response, calls.Emit());
//   ir.set_start(response);
//   const absl::Status finished = ir.Finish();
//   RETURN_IF_ERROR(calls.CheckArguments());
//   RETURN_IF_ERROR(finished);
#ifndef TIDEPOOL_SERVICE_TOOLS_CALL_GRAMMAR_H_
#define TIDEPOOL_SERVICE_TOOLS_CALL_GRAMMAR_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/output_regions.h"
#include "service/tools/tool_format.h"
#include "service/tools/tool_list.h"

namespace tidepool::service {

// Thread-compatible.
class CallGrammar {
 public:
  // The format, the rules, `texts` and `ir` must outlive this object.
  CallGrammar(const ToolFormat& format, const CallRules& rules,
              const engine::grammar::ResponseTexts* texts, engine::grammar::GrammarIr* ir)
      : format_(format), rules_(rules), texts_(*texts), ir_(*ir), pool_(ir->regexes()) {}

  // Returns the responses that the rules allow, without reasoning. If a call is required, these
  // responses consist only of calls. Otherwise these responses are free text, which may contain
  // calls. Returns INVALID_ARGUMENT with the tool, the place in its schema, the reason and a remedy
  // if the rules cannot be enforced exactly.
  absl::StatusOr<engine::grammar::Expr> Emit();
  // Returns the responses that consist only of calls, without reasoning.
  absl::StatusOr<engine::grammar::Expr> EmitOnlyCalls();
  // Returns the harmony message with this content.
  engine::grammar::Expr InFinalMessage(engine::grammar::Expr content);
  // Returns INVALID_ARGUMENT if no object matches the schema of a tool. Requires: ir->Finish() was
  // called.
  absl::Status CheckArguments() const;

 private:
  using Expr = engine::grammar::Expr;

  absl::Status CheckName(const Tool& tool) const;
  absl::StatusOr<Expr> EmitArguments(const Tool& tool);
  // Returns a call of any tool, without the text `skipped` with which the call begins.
  absl::StatusOr<Expr> EmitCall(absl::string_view skipped);
  // Returns all calls with the text around them, which begins with `skipped`. Leaves `skipped` out.
  absl::StatusOr<Expr> EmitAll(absl::string_view skipped);
  absl::StatusOr<Expr> EmitFree();
  absl::StatusOr<Expr> EmitFreeHarmony();
  Expr Text(absl::string_view text);

  const ToolFormat& format_;
  const CallRules& rules_;
  const engine::grammar::ResponseTexts& texts_;
  engine::grammar::GrammarIr& ir_;
  engine::grammar::RegexPool& pool_;
  std::vector<std::pair<std::string, Expr>> arguments_;  // each with the place of its schema
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_CALL_GRAMMAR_H_
