// OpenAI's requests as ours: bodies of /v1/completions and /v1/chat/completions, with the fields
// that vLLM adds (https://platform.openai.com/docs/api-reference/chat,
// https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html). docs/http.md lists the
// fields for users.
//
// Unset fields take the model's own defaults, then those of tidepool.v1.GenerateRequest, save that
// /v1/completions makes 16 tokens where max_tokens is unset, as OpenAI's does.
#ifndef TIDEPOOL_SERVICE_HTTP_OPENAI_REQUEST_H_
#define TIDEPOOL_SERVICE_HTTP_OPENAI_REQUEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/http/json.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

enum class OpenAiEndpoint : uint8_t { kCompletions, kChat };

struct OpenAiRequest {
  // Generations of one answer, prompts times n.
  static constexpr int64_t kMaxChoices = 128;

  OpenAiEndpoint endpoint = OpenAiEndpoint::kCompletions;
  // By index, the same prompt's n next to each other. Each passed CheckGenerateRequest.
  std::vector<v1::GenerateRequest> choices;
  // By index: the prompt's text, which the answer begins with. Empty: no echo.
  std::vector<std::string> echo;
  int64_t n = 1;  // choices of one prompt
  bool stream = false;
  bool include_usage = false;  // of a stream
  // Calls of tools are looked for in the answer.
  bool tools = false;
};

// Errors are INVALID_ARGUMENT and name the field: a wrong type, a value out of range, an unknown
// name (with the nearest right one), a field that is known and not served.
absl::StatusOr<OpenAiRequest> ParseCompletionRequest(const Json& body);
absl::StatusOr<OpenAiRequest> ParseChatRequest(const Json& body);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_REQUEST_H_
