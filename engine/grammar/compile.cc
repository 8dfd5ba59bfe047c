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

// A grammar of one terminal.
absl::StatusOr<GrammarIr> FinishTerminal(Regex regex, absl::string_view what, GrammarIr ir) {
  RETURN_IF_ERROR(ir.CheckLimits());
  ir.set_start(ir.Match(regex));
  if (ir.start() == kNoExpr) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": no text matches"));
  }
  RETURN_IF_ERROR(ir.Finish());
  return ir;
}

absl::StatusOr<GrammarIr> CompileRegex(const std::string& pattern) {
  GrammarIr ir;
  ASSIGN_OR_RETURN(const Regex regex, ParseRegex(pattern, RegexScope::kWhole, &ir.regexes()));
  return FinishTerminal(regex, "regex", std::move(ir));
}

absl::StatusOr<GrammarIr> CompileChoice(const std::vector<std::string>& choices) {
  if (choices.empty() || choices.size() > kMaxChoices) {
    return absl::InvalidArgumentError(
        absl::StrCat("choice: ", choices.size(), " choices; give 1 to ", kMaxChoices));
  }
  GrammarIr ir;
  std::vector<Regex> texts;
  size_t bytes = 0;
  for (const std::string& choice : choices) {
    RETURN_IF_ERROR(base::CheckUtf8(choice, "a choice"));
    bytes += choice.size();
    if (bytes > kMaxChoiceBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("choice: more than ", kMaxChoiceBytes, " bytes in all"));
    }
    texts.push_back(ir.regexes().Literal(choice));
  }
  const Regex regex = ir.regexes().Or(std::move(texts));
  return FinishTerminal(regex, "choice", std::move(ir));
}

absl::StatusOr<GrammarIr> CompileIr(const GrammarSource& source, const Tokenizer* tokenizer) {
  switch (source.kind) {
    case GrammarKind::kJsonSchema:
      return CompileJsonSchema(source.text,
                               {.whitespace_pattern = source.whitespace_pattern,
                                .one_of = source.coerce_one_of ? OneOf::kAsAnyOf : OneOf::kExact});
    case GrammarKind::kRegex:
      return CompileRegex(source.text);
    case GrammarKind::kChoice:
      return CompileChoice(source.choices);
    case GrammarKind::kGbnf:
      return CompileGbnf(source.text, tokenizer, {});
  }
  return absl::InvalidArgumentError("unknown kind of grammar");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> CompileGrammar(const GrammarSource& source,
                                                              const Tokenizer* tokenizer) {
  ASSIGN_OR_RETURN(GrammarIr ir, CompileIr(source, tokenizer));
  return std::make_shared<const Grammar>(std::move(ir));
}

}  // namespace tidepool::engine::grammar
