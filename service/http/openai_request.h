// Converts OpenAI requests to Tidepool's: the bodies of /v1/completions and /v1/chat/completions,
// with vLLM's additional fields (https://platform.openai.com/docs/api-reference/chat,
// https://docs.vllm.ai/en/stable/serving/openai_compatible_server.html). docs/http.md lists the
// fields for users.
//
// For a field that is not set, the model's own default is used. If the model has none, the default
// of tidepool.v1.GenerateRequest is used. There is one exception: /v1/completions without
// max_tokens generates 16 tokens, as in OpenAI's API.
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

// Which parts of the prompt a response contains, and whether it contains token ids.
struct PromptParts {
  bool echo = false;  // the response's text begins with the prompt
  // For a chat with echo: the last message of the chat. The response's text begins with it.
  std::string echo_text;
  // Set with echo and logprobs: the response's logprobs also include the prompt's tokens, each with
  // this number of alternatives.
  std::optional<int32_t> echo_logprobs;
  std::optional<int32_t> prompt_logprobs;  // vLLM's field: number of alternatives per prompt token
  bool token_ids = false;                  // the response has prompt_token_ids and token_ids
};

struct OpenAiRequest {
  // Maximum number of generations of one request: the number of prompts times n.
  static constexpr int64_t kMaxChoices = 128;

  OpenAiEndpoint endpoint = OpenAiEndpoint::kCompletions;
  // The requests to the front, by choice index. The n choices of one prompt are adjacent. Each
  // request has passed CheckGenerateRequest.
  std::vector<v1::GenerateRequest> choices;
  PromptParts prompt;
  int64_t n = 1;  // number of choices for each prompt
  bool stream = false;
  bool include_usage = false;     // only for a stream: send the usage at the end
  bool continuous_usage = false;  // only for a stream: send the usage in each event
  bool return_progress = false;   // only for a stream: send the progress of the prompt
  // Whether the request has tools.
  bool tools = false;
};

// Parse a request's body. INVALID_ARGUMENT, with the field's name, if a field has a wrong type or a
// value out of range, is not supported, or is unknown. For an unknown field, the message also
// suggests the most similar known name. If `recorder` is set, it records each field that is read.
absl::StatusOr<OpenAiRequest> ParseCompletionRequest(const Json& body,
                                                     FieldRecorder* recorder = nullptr);
absl::StatusOr<OpenAiRequest> ParseChatRequest(const Json& body, FieldRecorder* recorder = nullptr);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_REQUEST_H_
