#include "service/worker/output_rules.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/compile.h"
#include "engine/grammar/output_regions.h"
#include "kernels/base/status_macros.h"
#include "service/grpc/convert.h"
#include "service/tools/call_grammar.h"
#include "service/tools/tool_format.h"
#include "service/tools/tool_list.h"

namespace tidepool::service {
namespace {

using engine::grammar::Expr;
using engine::grammar::GrammarIr;
using engine::grammar::GrammarSource;
using engine::grammar::OpenEnd;
using engine::grammar::Reasoning;
using engine::grammar::ReasoningStart;
using engine::grammar::ResponseTexts;

constexpr int32_t kMaxLineBreaks = 2;  // after the end of the reasoning

// Returns whether the response begins with reasoning, from the text at the end of the prompt.
ReasoningStart StartOf(const WorkerModel& model, const worker::v1::Start& start,
                       absl::Span<const int32_t> prompt) {
  if (model.reasoning.begin().empty() || model.reasoning.end().empty()) {
    return ReasoningStart::kNone;
  }
  // Each of these tokens has at least one byte of the marker or of the white space after it.
  constexpr size_t kMaxSpace = 16;
  const size_t tokens = std::min(
      prompt.size(), kMaxSpace + model.reasoning.begin().size() + model.reasoning.end().size());
  const absl::StatusOr<std::string> decoded =
      model.tokenizer->Decode(prompt.last(tokens), engine::ControlText::kKeep);
  if (!decoded.ok()) return ReasoningStart::kNone;
  const absl::string_view tail = absl::StripTrailingAsciiWhitespace(*decoded);
  // The prompt can also end inside of the reasoning of a message that the response continues.
  if (absl::EndsWith(tail, model.reasoning.begin()) || start.prepared().in_reasoning()) {
    return ReasoningStart::kOpen;
  }
  // The template closed the reasoning, or the response continues a message.
  if (absl::EndsWith(tail, model.reasoning.end()) || start.chat().continue_final_message()) {
    return ReasoningStart::kNone;
  }
  return ReasoningStart::kOptional;
}

// The rules for a response. The `start` from which they were read must outlive this object.
struct OutputRules {
  std::optional<GrammarSource> source;
  CallRules calls;
  const ToolFormat* format = nullptr;  // syntax of tool calls; null: there are no calls
  ReasoningStart reasoning = ReasoningStart::kNone;

  bool needs_grammar() const { return source.has_value() || calls.restricts(); }
  bool has_calls() const { return format != nullptr && !calls.tools.empty(); }
};

absl::StatusOr<OutputRules> ReadRules(const WorkerModel& model, const worker::v1::Start& start,
                                      absl::Span<const int32_t> prompt) {
  OutputRules rules = {.source = ConstraintOf(start)};
  if (!start.has_chat()) return rules;
  const worker::v1::ChatOutput& chat = start.chat();
  const bool parallel = !chat.has_parallel_tool_calls() || chat.parallel_tool_calls();
  ASSIGN_OR_RETURN(rules.calls, RulesOf(chat.tools_json(), chat.tool_choice(), parallel));
  rules.format = FormatOf(model.tool_syntax);
  rules.reasoning = StartOf(model, start, prompt);
  if (rules.format == nullptr && rules.calls.restricts()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the syntax of tool calls of model '", model.name,
        "' is not known, so they cannot be constrained: leave tool_choice, parallel_tool_calls and "
        "strict at their defaults"));
  }
  return rules;
}

// Returns the grammar of the response without its reasoning.
absl::StatusOr<Expr> EmitResponse(const OutputRules& rules, const WorkerModel& model,
                                  CallGrammar* calls, GrammarIr* ir) {
  if (!rules.source.has_value() || rules.calls.required) return calls->Emit();
  ASSIGN_OR_RETURN(Expr text, EmitGrammar(*rules.source, model.tokenizer, ir));
  if (model.tool_syntax == v1::HARMONY) text = calls->InFinalMessage(text);
  if (!rules.has_calls()) return text;
  ASSIGN_OR_RETURN(const Expr only_calls, calls->EmitOnlyCalls());
  return ir->Alt({text, only_calls});
}

absl::StatusOr<GrammarIr> CompileRules(const OutputRules& rules, const WorkerModel& model) {
  // Without a format there are no calls.
  const ToolFormat no_format;
  const bool plain = rules.reasoning == ReasoningStart::kNone && !rules.has_calls() &&
                     model.tool_syntax != v1::HARMONY;
  if (plain && rules.source.has_value()) return CompileIr(*rules.source, model.tokenizer);
  GrammarIr ir;
  const ResponseTexts texts(model.tokenizer, MarkersOf(model.tool_syntax, model.reasoning));
  CallGrammar calls(rules.format == nullptr ? no_format : *rules.format, rules.calls, &texts, &ir);
  ASSIGN_OR_RETURN(const Expr response, EmitResponse(rules, model, &calls, &ir));
  engine::grammar::RegexPool& pool = ir.regexes();
  const Reasoning reasoning = {
      .begin = texts.Match(model.reasoning.begin(), &pool),
      .end = texts.MarkerOf(model.reasoning.end()),
      .after = model.tool_syntax == v1::HARMONY
                   ? texts.Match(absl::StrCat(harmony::kStart, "assistant"), &pool)
                   : pool.Repeat(pool.Literal("\n"), 0, kMaxLineBreaks),
      .start = rules.reasoning};
  const bool must = rules.source.has_value() || rules.calls.required;
  ir.set_start(
      AfterReasoning(reasoning, response, must ? OpenEnd::kRefused : OpenEnd::kAllowed, &ir));
  const absl::Status finished = ir.Finish();
  RETURN_IF_ERROR(calls.CheckArguments());
  RETURN_IF_ERROR(finished);
  return ir;
}

absl::StatusOr<std::optional<engine::ReasoningLimit>> LimitOf(const WorkerModel& model,
                                                              const worker::v1::ChatOutput& chat,
                                                              ReasoningStart start) {
  if (!chat.has_thinking_budget_tokens()) return std::nullopt;
  if (model.reasoning.end().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("thinking_budget_tokens: the responses of model '", model.name,
                     "' have no reasoning that the server knows; leave it out"));
  }
  if (start == ReasoningStart::kNone) return std::nullopt;
  const ResponseTexts texts(model.tokenizer, MarkersOf(model.tool_syntax, model.reasoning));
  const auto encode = [&model](const std::string& text) {
    return model.tokenizer->Encode(text, engine::SpecialTokens::kParse, engine::AddBos::kContinue);
  };
  engine::ReasoningLimit limit = {.open = start == ReasoningStart::kOpen,
                                  .begin = model.reasoning.begin(),
                                  .end = texts.MarkerOf(model.reasoning.end()),
                                  .max_tokens = chat.thinking_budget_tokens()};
  ASSIGN_OR_RETURN(limit.begin_tokens, encode(limit.begin));
  ASSIGN_OR_RETURN(limit.end_tokens, encode(limit.end.text));
  return limit;
}

char LetterOf(ReasoningStart reasoning) {
  return static_cast<char>('0' + static_cast<int>(reasoning));
}

// Returns the key of the grammar in the model's cache: everything that the grammar depends on,
// except the model. The first letter is that of `reasoning`.
std::string KeyOf(const worker::v1::Start& start, ReasoningStart reasoning) {
  worker::v1::Start part;
  *part.mutable_constraint() = start.constraint();
  *part.mutable_chat() = start.chat();
  part.mutable_chat()->clear_thinking_budget_tokens();
  part.mutable_chat()->clear_continue_final_message();
  return LetterOf(reasoning) + part.SerializeAsString();
}

}  // namespace

absl::Status ConstrainOutput(const WorkerModel& model, const worker::v1::Start& start,
                             engine::GenerationRequest* request) {
  const absl::Span<const int32_t> prompt =
      absl::MakeConstSpan(request->token_ids).first(request->prompt_length);
  ASSIGN_OR_RETURN(const OutputRules rules, ReadRules(model, start, prompt));
  ASSIGN_OR_RETURN(request->reasoning_limit, LimitOf(model, start.chat(), rules.reasoning));
  const bool has_limit = request->reasoning_limit.has_value();
  if (!rules.needs_grammar() && !has_limit) return absl::OkStatus();
  if (model.grammars == nullptr) {
    return absl::UnimplementedError("this model does not support constrained output");
  }
  request->token_trie = model.grammars->trie();
  if (!rules.needs_grammar()) return absl::OkStatus();
  ASSIGN_OR_RETURN(request->grammar, model.grammars->Get(KeyOf(start, rules.reasoning), [&] {
    return CompileRules(rules, model);
  }));
  return absl::OkStatus();
}

OutputWork WorkFor(const WorkerModel& model, const worker::v1::Start& start) {
  const worker::v1::ChatOutput& chat = start.chat();
  // The tools are not parsed here, because that would take time. The key "strict" can also be
  // written with escapes.
  const bool may_be_strict = absl::StrContains(chat.tools_json(), "\"strict\"") ||
                             absl::StrContains(chat.tools_json(), "\\u");
  const bool may_compile = start.has_constraint() || chat.has_tool_choice() ||
                           chat.has_parallel_tool_calls() || may_be_strict;
  if (!may_compile) {
    return chat.has_thinking_budget_tokens() ? OutputWork::kShort : OutputWork::kNone;
  }
  if (model.grammars == nullptr) return OutputWork::kShort;
  std::string key = KeyOf(start, ReasoningStart::kNone);
  for (const ReasoningStart reasoning :
       {ReasoningStart::kNone, ReasoningStart::kOptional, ReasoningStart::kOpen}) {
    key[0] = LetterOf(reasoning);
    if (model.grammars->Contains(key)) return OutputWork::kShort;
  }
  return OutputWork::kLong;
}

absl::Status CheckOutputRules(const WorkerModel& model, const v1::GenerateRequest& request,
                              absl::Span<const int32_t> prompt, bool in_reasoning) {
  worker::v1::Start start;
  CopyConstraint(request, &start);
  start.mutable_prepared()->set_in_reasoning(in_reasoning);
  engine::GenerationRequest generation;
  generation.token_ids.assign(prompt.begin(), prompt.end());
  generation.prompt_length = static_cast<int64_t>(prompt.size());
  return ConstrainOutput(model, start, &generation);
}

}  // namespace tidepool::service
