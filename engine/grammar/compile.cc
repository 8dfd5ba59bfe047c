#include "engine/grammar/compile.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/grammar/gbnf.h"
#include "engine/grammar/regex_parser.h"
#include "engine/grammar/schema/json_schema.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace tidepool::engine::grammar {
namespace {

absl::StatusOr<Expr> EmitTerminal(Regex regex, absl::string_view what, GrammarIr* ir) {
  RETURN_IF_ERROR(ir->CheckLimits());
  const Expr expr = ir->Match(regex);
  if (expr != kNoExpr) return expr;
  return absl::InvalidArgumentError(absl::StrCat(what, ": no text matches"));
}

absl::StatusOr<Expr> EmitRegex(const std::string& pattern, GrammarIr* ir) {
  ASSIGN_OR_RETURN(const Regex regex, ParseRegex(pattern, RegexScope::kWhole, &ir->regexes()));
  return EmitTerminal(regex, "regex", ir);
}

absl::StatusOr<Expr> EmitChoice(const std::vector<std::string>& choices, GrammarIr* ir) {
  if (choices.empty() || choices.size() > kMaxChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("choice: ", choices.size(), " choices; give 1 to ", kMaxChoices));
  }
  size_t bytes = 0;
  for (const std::string& choice : choices) {
    RETURN_IF_ERROR(base::CheckUtf8(choice, "a choice"));
    bytes += choice.size();
    if (bytes > kMaxChoiceBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("choice: more than ", kMaxChoiceBytes, " bytes in all"));
    }
  }
  return EmitTerminal(ir->regexes().Literals(choices), "choice", ir);
}

JsonSchemaOptions SchemaOptions(const GrammarSource& source) {
  return {.whitespace_pattern = source.whitespace_pattern,
          .one_of = source.coerce_one_of ? OneOf::kAsAnyOf : OneOf::kExact};
}

}  // namespace

absl::StatusOr<GrammarIr> CompileIr(const GrammarSource& source, const Tokenizer* tokenizer) {
  if (source.kind == GrammarKind::kJsonSchema) {
    return CompileJsonSchema(source.text, SchemaOptions(source));
  }
  if (source.kind == GrammarKind::kGbnf) return CompileGbnf(source.text, tokenizer, {});
  GrammarIr ir;
  ASSIGN_OR_RETURN(const Expr start, EmitGrammar(source, tokenizer, &ir));
  ir.set_start(start);
  RETURN_IF_ERROR(ir.Finish());
  return ir;
}

absl::StatusOr<Expr> EmitGrammar(const GrammarSource& source, const Tokenizer* tokenizer,
                                 GrammarIr* ir) {
  switch (source.kind) {
    case GrammarKind::kJsonSchema:
      return EmitJsonSchema(source.text, SchemaOptions(source), ir);
    case GrammarKind::kRegex:
      return EmitRegex(source.text, ir);
    case GrammarKind::kChoice:
      return EmitChoice(source.choices, ir);
    case GrammarKind::kGbnf:
      return EmitGbnf(source.text, tokenizer, ir);
  }
  return absl::InvalidArgumentError("unknown kind of grammar");
}

absl::StatusOr<std::shared_ptr<const Grammar>> CompileGrammar(const GrammarSource& source,
                                                              const Tokenizer* tokenizer) {
  ASSIGN_OR_RETURN(GrammarIr ir, CompileIr(source, tokenizer));
  return std::make_shared<const Grammar>(std::move(ir));
}

}  // namespace tidepool::engine::grammar
