#include "service/tools/answer_message.h"

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"
#include "service/tools/response_parser.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {

void SeparateAnswer(v1::ToolSyntax syntax, v1::ChatMessage* message) {
  using Json = nlohmann::ordered_json;
  if (syntax != v1::HARMONY || !absl::StrContains(message->content(), harmony::kMessage)) return;
  ResponseParser parser({.syntax = syntax, .tools = std::make_shared<ToolSchemas>()});
  OutputPieces pieces;
  parser.Feed(message->content(), &pieces);
  parser.Finish(&pieces);
  std::string content, reasoning;
  Json calls = Json::array();
  std::string arguments;
  for (const OutputPiece& piece : pieces) {
    if (piece.kind == OutputPiece::Kind::kContent) content += piece.text;
    if (piece.kind == OutputPiece::Kind::kReasoning) reasoning += piece.text;
    if (piece.kind == OutputPiece::Kind::kCall) {
      calls.push_back({{"type", "function"}, {"function", {{"name", piece.text}}}});
      arguments.clear();
    }
    if (piece.kind == OutputPiece::Kind::kArguments) {
      arguments += piece.text;
      const Json json = Json::parse(arguments, nullptr, /*allow_exceptions=*/false);
      calls.back()["function"]["arguments"] = json.is_object() ? json : Json(arguments);
    }
  }
  message->set_content(content);
  if (!reasoning.empty()) message->set_reasoning_content(reasoning);
  if (!calls.empty()) {
    message->set_tool_calls_json(
        calls.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
  }
}

}  // namespace tidepool::service
