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
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "service/http/field_recorder.h"
#include "service/http/json.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

enum class OpenAiEndpoint : uint8_t { kCompletions, kChat };

// What an answer shows of its prompt and of tokens.
struct PromptParts {
  bool echo = false;  // the text begins with the prompt's
  // The text begins with this: the last message of a chat with echo.
  std::string echo_text;
  // With echo: the prompt's tokens in the answer's logprobs, with this many alternatives.
  std::optional<int32_t> echo_logprobs;
  std::optional<int32_t> prompt_logprobs;  // as vLLM's field, with this many alternatives
  bool token_ids = false;                  // prompt_token_ids and token_ids
};

struct OpenAiRequest {
  // Generations of one answer, prompts times n.
  static constexpr int64_t kMaxChoices = 128;

  OpenAiEndpoint endpoint = OpenAiEndpoint::kCompletions;
  // By index, the same prompt's n next to each other. Each passed CheckGenerateRequest.
  std::vector<v1::GenerateRequest> choices;
  PromptParts prompt;
  int64_t n = 1;  // choices of one prompt
  bool stream = false;
  bool include_usage = false;     // of a stream
  bool continuous_usage = false;  // in each of its events
  bool return_progress = false;   // of a stream
  // Calls of tools are looked for in the answer.
  bool tools = false;
};

// Errors are INVALID_ARGUMENT and name the field: a wrong type, a value out of range, an unknown
// name (with the nearest right one), a field that is known and not served. `recorder` learns of
// each field that is read; null: nobody does.
absl::StatusOr<OpenAiRequest> ParseCompletionRequest(const Json& body,
                                                     FieldRecorder* recorder = nullptr);
absl::StatusOr<OpenAiRequest> ParseChatRequest(const Json& body, FieldRecorder* recorder = nullptr);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_REQUEST_H_
