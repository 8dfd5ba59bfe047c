// Converts OpenAI requests to Tidepool's: bodies of /v1/completions and /v1/chat/completions, with
// vLLM's additional fields (https://platform.openai.com/docs/api-reference/chat,
// https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html). docs/http.md lists the
// fields for users.
//
// Unset fields take the model's own defaults, then those of tidepool.v1.GenerateRequest. One
// exception: /v1/completions without max_tokens generates 16 tokens, as OpenAI's does.
#ifndef TIDEPOOL_SERVICE_HTTP_OPENAI_REQUEST_H_
#define TIDEPOOL_SERVICE_HTTP_OPENAI_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/http/field_recorder.h"
#include "service/http/json.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

enum class OpenAiEndpoint : uint8_t { kCompletions, kChat };

// Which parts of the prompt and of tokens a response contains.
struct PromptParts {
  bool echo = false;  // the response text begins with the prompt
  // The last message of a chat with echo. The response text begins with it.
  std::string echo_text;
  // With echo: the response's logprobs include the prompt's tokens, with this many alternatives.
  std::optional<int32_t> echo_logprobs;
  std::optional<int32_t> prompt_logprobs;  // vLLM's field: this many alternatives
  bool token_ids = false;                  // prompt_token_ids and token_ids
};

struct OpenAiRequest {
  // Maximum number of generations of one request: prompts times n.
  static constexpr int64_t kMaxChoices = 128;

  OpenAiEndpoint endpoint = OpenAiEndpoint::kCompletions;
  // By index. The n choices of one prompt are adjacent. Each passed CheckGenerateRequest.
  std::vector<v1::GenerateRequest> choices;
  PromptParts prompt;
  int64_t n = 1;  // choices of one prompt
  bool stream = false;
  bool include_usage = false;     // for a stream
  bool continuous_usage = false;  // usage in each event of a stream
  bool return_progress = false;   // for a stream
  // Look for tool calls in the response.
  bool tools = false;
};

// INVALID_ARGUMENT names the field: a wrong type, a value out of range, an unknown name (with the
// nearest known one), or a known but unsupported field. If `recorder` is set, it records each field
// that is read.
absl::StatusOr<OpenAiRequest> ParseCompletionRequest(const Json& body,
                                                     FieldRecorder* recorder = nullptr);
absl::StatusOr<OpenAiRequest> ParseChatRequest(const Json& body, FieldRecorder* recorder = nullptr);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_REQUEST_H_
