// libFuzzer target: any bytes as what HTTP hands on. The first byte chooses: 'p' a body of
// /v1/completions, 'c' one of /v1/chat/completions, 't' an answer in which calls of tools are
// looked for (behind a byte that chooses the syntax and the size of its pieces).
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:http_fuzz -- -max_total_time=60
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "service/convert.h"
#include "service/http/http_error.h"
#include "service/http/openai_request.h"
#include "service/http/openai_response.h"
#include "service/http/tool_calls.h"

namespace {

namespace service = tidepool::service;
namespace v1 = tidepool::v1;

void CheckRefusal(const absl::Status& status) {
  const service::HttpError error = service::ToHttpError(status);
  CHECK(error.status == 400);
  CHECK(!error.message.empty());
  CHECK(!absl::StrContains(error.message, "\n")) << error.message;
  CHECK(error.message.size() < 2000) << error.message;
  service::DumpJson(service::ErrorJson(error));
}

void TryBody(absl::string_view body, bool chat) {
  const absl::StatusOr<service::Json> json = service::ParseJsonBody(body);
  if (!json.ok()) return CheckRefusal(json.status());
  const auto request =
      chat ? service::ParseChatRequest(*json) : service::ParseCompletionRequest(*json);
  if (!request.ok()) return CheckRefusal(request.status());
  CHECK(!request->choices.empty());
  CHECK(request->choices.size() <= service::OpenAiRequest::kMaxChoices);
  CHECK(request->echo.empty() || request->echo.size() == request->choices.size());
  for (const v1::GenerateRequest& choice : request->choices) {
    CHECK(service::CheckGenerateRequest(choice).ok());
  }
}

// Everything that came out of a parser, in order of kinds.
std::string Found(v1::ToolSyntax syntax, absl::string_view text, size_t step) {
  service::ToolCallParser parser(syntax);
  std::string content, calls;
  const auto take = [&](const service::ToolCallParser::Output& out) {
    content += out.content;
    for (const service::ToolCall& call : out.calls) calls += call.name + call.arguments + "\n";
  };
  for (size_t i = 0; i < text.size(); i += step) take(parser.Feed(text.substr(i, step)));
  take(parser.Finish());
  if (calls.empty()) CHECK(content == text);
  return content + "\n--\n" + calls;
}

void TryTools(absl::string_view bytes) {
  if (bytes.empty()) return;
  const auto choice = static_cast<uint8_t>(bytes[0]);
  const auto syntax = static_cast<v1::ToolSyntax>(choice % 5);
  bytes.remove_prefix(1);
  const std::string whole = Found(syntax, bytes, std::max<size_t>(bytes.size(), 1));
  CHECK(whole == Found(syntax, bytes, 1 + choice / 5));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'p') TryBody(bytes, /*chat=*/false);
  if (data[0] == 'c') TryBody(bytes, /*chat=*/true);
  if (data[0] == 't') TryTools(bytes);
  return 0;
}
