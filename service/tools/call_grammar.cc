#include "service/tools/call_grammar.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/grammar/schema/json_schema.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"
#include "service/tools/parameter_grammar.h"

namespace tidepool::service {
namespace {

using engine::grammar::Expr;
using engine::grammar::GrammarIr;
using engine::grammar::Marker;
using engine::grammar::Parts;
using engine::grammar::Regex;
using engine::grammar::RootValue;
using engine::grammar::SubschemaEmitter;

constexpr char kAnyObject[] = R"({"type":"object"})";
constexpr size_t kMaxNameBytes = 128;
constexpr size_t kMaxTools = 128;

absl::StatusOr<Expr> EmitJsonObject(const std::string& schema, GrammarIr* ir) {
  ASSIGN_OR_RETURN(const auto emitter, SubschemaEmitter::Create(schema, ir));
  return emitter->Emit("", RootValue::kObject);
}

std::string PlaceOf(const Tool& tool) { return absl::StrCat("tools[", tool.index, "].function"); }

}  // namespace

Expr CallGrammar::Text(absl::string_view text) { return ir_.Match(texts_.Match(text, &pool_)); }

// The tool's name is written into the format's syntax without escapes, so only some characters are
// allowed.
absl::Status CallGrammar::CheckName(const Tool& tool) const {
  const bool good = std::all_of(tool.name.begin(), tool.name.end(), [](char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-' || c == '.' || c == ':' || c == '/';
  });
  if (good && tool.name.size() <= kMaxNameBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(PlaceOf(tool), ".name is ", base::Quoted(tool.name),
                   "; to constrain calls, it must be at most ", kMaxNameBytes,
                   " letters, digits, '_', '-', '.', ':' or '/'"));
}

absl::StatusOr<Expr> CallGrammar::EmitArguments(const Tool& tool) {
  const bool exact = (rules_.all_strict || tool.strict) && !tool.parameters.empty();
  const std::string place = absl::StrCat(PlaceOf(tool), ".parameters");
  const std::string schema = exact ? tool.parameters : "";
  const absl::StatusOr<Expr> arguments = format_.form == ArgumentForm::kJson
                                             ? EmitJsonObject(exact ? schema : kAnyObject, &ir_)
                                             : EmitParameters(format_, schema, texts_, &ir_);
  if (!arguments.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(place, ": ", arguments.status().message()));
  }
  arguments_.emplace_back(place, *arguments);
  return arguments;
}

absl::StatusOr<Expr> CallGrammar::EmitCall(absl::string_view skipped) {
  if (rules_.tools.size() > kMaxTools) {
    return absl::InvalidArgumentError(absl::StrCat("there are ", rules_.tools.size(),
                                                   " tools; at most ", kMaxTools,
                                                   " can be called if calls are constrained"));
  }
  std::vector<Expr> calls;
  for (const Tool& tool : rules_.tools) {
    RETURN_IF_ERROR(CheckName(tool));
    ASSIGN_OR_RETURN(const Expr arguments, EmitArguments(tool));
    const std::string begin = absl::StrCat(format_.call_begin, tool.name, format_.name_end);
    calls.push_back(
        ir_.Seq({Text(absl::StripPrefix(begin, skipped)), arguments, Text(format_.call_end)}));
  }
  return ir_.Alt(std::move(calls));
}

absl::StatusOr<Expr> CallGrammar::EmitAll(absl::string_view skipped) {
  ASSIGN_OR_RETURN(const Expr call, EmitCall(""));
  Expr more = engine::grammar::kEmptyExpr;
  if (rules_.parallel && format_.parallel) {
    more = ir_.Repeat(ir_.Seq({Text(format_.separator), call}), 0, engine::grammar::kNoLimit);
  }
  const absl::string_view begin = absl::StripPrefix(format_.begin, skipped);
  return ir_.Seq({Text(begin), call, more, Text(format_.end)});
}

Expr CallGrammar::InFinalMessage(Expr content) {
  return ir_.Seq({Text(absl::StrCat(harmony::kChannel, "final", harmony::kMessage)), content});
}

// A response of harmony is one message, or a call after an optional message to the user.
absl::StatusOr<Expr> CallGrammar::EmitFreeHarmony() {
  ASSIGN_OR_RETURN(const Expr call, EmitAll(""));
  const Marker end = texts_.MarkerOf(harmony::kEnd);
  const Expr text = ir_.Match(TextWithout(end, &pool_));
  const Expr preamble = ir_.Seq(
      {Text(absl::StrCat(harmony::kChannel, "commentary", harmony::kMessage)),
       ir_.Match(TextThrough(end, &pool_)), Text(absl::StrCat(harmony::kStart, "assistant"))});
  return ir_.Alt({InFinalMessage(text), ir_.Seq({ir_.Repeat(preamble, 0, 1), call})});
}

// Returns free text in which calls may begin.
absl::StatusOr<Expr> CallGrammar::EmitFree() {
  if (format_.syntax == v1::HARMONY) return EmitFreeHarmony();
  const bool parallel = rules_.parallel && format_.parallel;
  if (!format_.trigger.empty()) {
    // If the format has no text around all calls, each call begins with the trigger.
    ASSIGN_OR_RETURN(const Expr part,
                     format_.begin.empty() ? EmitCall(format_.trigger) : EmitAll(format_.trigger));
    return FreeTextWithParts(texts_.MarkerOf(format_.trigger), part,
                             parallel ? Parts::kMany : Parts::kOne, &ir_);
  }
  // Calls are only at the beginning, where their first character distinguishes them from
  // other text.
  ASSIGN_OR_RETURN(const Expr calls, EmitAll(""));
  const absl::string_view first = format_.begin.empty() ? format_.call_begin : format_.begin;
  const Regex text = TextNotBeginning(first.front(), &pool_);
  return ir_.Alt({ir_.Match(text), calls, ir_.Seq({Text(format_.optional_marker), calls})});
}

absl::StatusOr<Expr> CallGrammar::Emit() { return rules_.required ? EmitOnlyCalls() : EmitFree(); }

absl::StatusOr<Expr> CallGrammar::EmitOnlyCalls() {
  ASSIGN_OR_RETURN(const Expr calls, EmitAll(""));
  if (format_.optional_marker.empty()) return calls;
  return ir_.Alt({calls, ir_.Seq({Text(format_.optional_marker), calls})});
}

absl::Status CallGrammar::CheckArguments() const {
  for (const auto& [place, expr] : arguments_) {
    if (ir_.node(expr).productive) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": no JSON object matches the schema; correct it"));
  }
  return absl::OkStatus();
}

}  // namespace tidepool::service
