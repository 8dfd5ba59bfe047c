#include "service/tools/response_message.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"
#include "service/tools/response_parser.h"
#include "service/tools/tool_format.h"

namespace tidepool::service {

void SeparateResponse(v1::ToolSyntax syntax, v1::ChatMessage* message) {
  using Json = nlohmann::ordered_json;
  if (syntax != v1::HARMONY || !absl::StrContains(message->content(), harmony::kMessage)) return;
  ResponseParser parser({.syntax = syntax, .tools = std::make_shared<ToolSchemas>()});
  OutputPieces pieces;
  parser.Feed(message->content(), &pieces);
  parser.Finish(&pieces);
  std::string content, reasoning;
  struct Call {
    std::string name, arguments;
  };
  std::vector<Call> calls;
  for (const OutputPiece& piece : pieces) {
    if (piece.kind == OutputPiece::Kind::kContent) content += piece.text;
    if (piece.kind == OutputPiece::Kind::kReasoning) reasoning += piece.text;
    if (piece.kind == OutputPiece::Kind::kCall) calls.push_back({.name = piece.text});
    if (piece.kind == OutputPiece::Kind::kArguments) calls.back().arguments += piece.text;
  }
  message->set_content(content);
  if (!reasoning.empty()) message->set_reasoning_content(reasoning);
  Json list = Json::array();
  for (const Call& call : calls) {
    Json function = {{"name", call.name}};
    if (!call.arguments.empty()) {
      const Json json = Json::parse(call.arguments, nullptr, /*allow_exceptions=*/false);
      function["arguments"] = json.is_object() ? json : Json(call.arguments);
    }
    list.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  if (!list.empty()) {
    message->set_tool_calls_json(
        list.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
  }
}

}  // namespace tidepool::service
