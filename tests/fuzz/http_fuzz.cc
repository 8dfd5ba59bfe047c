// libFuzzer target: any bytes as input of the HTTP front. The first byte selects the parser:
//   p  the body of /v1/completions
//   c  the body of /v1/chat/completions
//   x  the body of /tokenize, /detokenize or /apply-template
//   w  the headers of a web page, one per line: Host, Origin, Access-Control-Request-Headers
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:http_fuzz -- -max_total_time=60
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "service/grpc/check_request.h"
#include "service/http/cors.h"
#include "service/http/host_check.h"
#include "service/http/http_error.h"
#include "service/http/openai_request.h"
#include "service/http/openai_response.h"
#include "service/http/text_api.h"

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
  for (const v1::GenerateRequest& choice : request->choices) {
    CHECK(service::CheckGenerateRequest(choice).ok());
  }
}

void TryText(absl::string_view body) {
  const absl::StatusOr<service::Json> json = service::ParseJsonBody(body);
  if (!json.ok()) return CheckRefusal(json.status());
  for (const auto& request :
       {service::ParseTokenizeBody(*json), service::ParseApplyTemplateBody(*json)}) {
    if (!request.ok()) {
      CheckRefusal(request.status());
    } else if (request->has_chat()) {
      CHECK(service::CheckChat(request->chat()).ok());
    }
  }
  const auto ids = service::ParseDetokenizeBody(*json);
  if (!ids.ok()) CheckRefusal(ids.status());
}

const service::CorsOrigins& Origins() {
  static const service::CorsOrigins* const origins = [] {
    auto* made = new service::CorsOrigins();
    for (const char* pattern : {"https://chat.example", "http://localhost:*", "app://*"}) {
      CHECK(made->Add(pattern).ok());
    }
    return made;
  }();
  return *origins;
}

void TryPage(absl::string_view bytes) {
  const std::vector<std::string> lines = absl::StrSplit(bytes, '\n');
  if (lines.size() != 3) return;
  const service::HttpHead head = {.method = "OPTIONS",
                                  .origin = lines[1],
                                  .request_method = "POST",
                                  .request_headers = lines[2],
                                  .host = lines[0]};
  const absl::Status host = service::CheckHost(
      head.host, {.served = service::HostPolicy::Served::kOfThisMachine, .names = {"llm.example"}});
  if (!host.ok()) CHECK(!absl::StrContains(host.message(), "\n")) << host;
  if (host.ok() && !head.host.empty()) {
    const std::string lower = absl::AsciiStrToLower(head.host);
    CHECK(absl::StrContains(lower, "localhost") || absl::StrContains(lower, "127.") ||
          absl::StrContains(lower, "::1") || absl::StrContains(lower, "llm.example"))
        << head.host;
  }
  service::CorsOrigins own;
  if (own.Add(head.origin).ok() && !own.any() && !absl::StrContains(head.origin, "*")) {
    CHECK(own.Allows(head.origin)) << head.origin;
  }
  const service::HttpHeaders preflight = service::PreflightHeaders(Origins(), head, "POST");
  CHECK(preflight.empty() == !Origins().Allows(head.origin));
  for (const auto& [name, value] : preflight) {
    for (const char c : value) CHECK(c > 0x1f && c < 0x7f) << value;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == 'p') TryBody(bytes, /*chat=*/false);
  if (data[0] == 'c') TryBody(bytes, /*chat=*/true);
  if (data[0] == 'x') TryText(bytes);
  if (data[0] == 'w') TryPage(bytes);
  return 0;
}
