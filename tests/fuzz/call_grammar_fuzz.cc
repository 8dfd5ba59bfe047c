// libFuzzer target: any text as the tools of a request, whose calls are constrained. The first byte
// selects the syntax. The second byte has flags: 1, a call is required; 2, only one call is
// allowed. Its other bits select the tokens. Every state of a grammar has a next token, and the
// parser of responses finds the calls in a text of the grammar.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:call_grammar_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_ir.h"
#include "engine/grammar/output_regions.h"
#include "kernels/base/check.h"
#include "service/tools/call_grammar.h"
#include "service/tools/response_parser.h"
#include "service/tools/tool_format.h"
#include "service/tools/tool_list.h"
#include "tests/fuzz/grammar_walk.h"

namespace {

namespace grammar = tidepool::engine::grammar;
namespace service = tidepool::service;
namespace v1 = tidepool::v1;

// Larger inputs only take more time.
constexpr size_t kMaxBytes = 4096;

// Returns the grammar of the responses, or an error.
absl::StatusOr<grammar::GrammarIr> Compile(const service::ToolFormat& format,
                                           const service::CallRules& rules) {
  const grammar::ResponseTexts texts(nullptr, {});
  grammar::GrammarIr ir;
  service::CallGrammar calls(format, rules, &texts, &ir);
  const absl::StatusOr<grammar::Expr> start = calls.Emit();
  if (!start.ok()) return start.status();
  ir.set_start(*start);
  const absl::Status finished = ir.Finish();
  if (absl::Status arguments = calls.CheckArguments(); !arguments.ok()) return arguments;
  if (!finished.ok()) return finished;
  return ir;
}

// Checks that the response consists only of calls of the tools.
void CheckCalls(const service::ToolFormat& format, const service::CallRules& rules,
                absl::string_view tools_json, const std::string& text) {
  service::ResponseParser parser(
      {.syntax = format.syntax, .tools = std::make_shared<service::ToolSchemas>(tools_json)});
  service::OutputPieces pieces;
  parser.Feed(text, &pieces);
  parser.Finish(&pieces);
  size_t calls = 0;
  for (const service::OutputPiece& piece : pieces) {
    CHECK(piece.kind != service::OutputPiece::Kind::kContent) << text;
    if (piece.kind != service::OutputPiece::Kind::kCall) continue;
    ++calls;
    bool known = false;
    for (const service::Tool& tool : rules.tools) known = known || tool.name == piece.text;
    CHECK(known) << piece.text << " in " << text;
  }
  CHECK(calls == 1 || (calls > 1 && rules.parallel && format.parallel)) << text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > kMaxBytes) return 0;
  const std::vector<const service::ToolFormat*> formats = service::AllToolFormats();
  const service::ToolFormat& format = *formats[data[0] % formats.size()];
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const absl::string_view tools = input.substr(2);
  v1::ToolChoice choice;
  if ((data[1] & 1) != 0) choice.set_mode(v1::ToolChoice::REQUIRED);
  const auto rules = service::RulesOf(tools, choice, /*parallel=*/(data[1] & 2) == 0);
  if (!rules.ok()) {
    tidepool::fuzz::CheckError(rules.status());
    return 0;
  }
  if (!rules->restricts()) return 0;
  absl::StatusOr<grammar::GrammarIr> ir = Compile(format, *rules);
  if (!ir.ok()) {
    tidepool::fuzz::CheckError(ir.status());
    return 0;
  }
  const auto walked = tidepool::fuzz::WalkGrammar(
      std::make_shared<const grammar::Grammar>(*std::move(ir)), input.substr(1), 300);
  if (walked.ended && rules->required) CheckCalls(format, *rules, tools, walked.text);
  return 0;
}
