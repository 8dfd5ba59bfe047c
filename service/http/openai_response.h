// Formats responses as OpenAI does, complete or as chunks of a stream.
#ifndef TIDEPOOL_SERVICE_HTTP_OPENAI_RESPONSE_H_
#define TIDEPOOL_SERVICE_HTTP_OPENAI_RESPONSE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "service/http/json.h"
#include "service/http/openai_request.h"
#include "service/http/tool_calls.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// The fields that all chunks of a response begin with.
struct AnswerHead {
  OpenAiEndpoint endpoint = OpenAiEndpoint::kCompletions;
  std::string id;
  std::string model;
  int64_t created = 0;  // Unix seconds
};

// Token counts of a response. Each prompt counts once, even with several choices.
struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  // Expert statistics of all choices' forward passes.
  bool has_experts = false;  // the model has experts
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  int64_t expert_demand_bytes = 0;
  double expert_stall_seconds = 0;
  // Sums over all prompts and all choices.
  double prefill_seconds = 0;
  double decode_seconds = 0;
};
// The token counts so far. The number of cached tokens is known only at the end.
Json TokensJson(int64_t prompt_tokens, int64_t completion_tokens);
// Includes the expert statistics if the model has experts. OpenAI's usage has no such fields.
Json UsageJson(const AnswerUsage& usage);
// Uses the names of llama.cpp's server: computed and cached prompt tokens, generated tokens, and
// times.
Json TimingsJson(const AnswerUsage& usage);
// Same format as llama.cpp's server, for a stream with return_progress.
Json ProgressJson(const v1::PromptProgress& progress);

// More members of a response or chunk, besides choices and usage, as JSON. Empty: none.
struct AnswerExtras {
  std::string prompt_token_ids;
  std::string prompt_logprobs;
  std::string prompt_progress;
  std::string timings;
};

// Returns a complete response. Consumes `choices`, the results of TakeWhole.
std::string AnswerText(const AnswerHead& head, std::vector<std::string> choices,
                       const AnswerUsage& usage, const AnswerExtras& extras = {});
// Returns one event of a stream. `choice` is the result of TakeDelta. It is empty in the last
// event, which has the usage. `usage` is JSON, or empty.
std::string ChunkText(const AnswerHead& head, absl::string_view choice, absl::string_view usage,
                      const AnswerExtras& extras = {});

// One event of text/event-stream (https://html.spec.whatwg.org/multipage/server-sent-events.html).
std::string SseEvent(absl::string_view json);
inline constexpr char kSseDone[] = "data: [DONE]\n\n";
// Readers of events ignore it.
inline constexpr char kSseComment[] = ": the response is being computed\n\n";

// Thread-compatible. Renders one choice from its messages to JSON. Log-probabilities are stored as
// JSON text, which is ten times smaller than the messages.
class ChoiceRenderer {
 public:
  // `head.id` is the prefix of the ids of tool calls.
  ChoiceRenderer(const AnswerHead& head, int64_t index, const PromptParts& parts);

  // Call before the first message.
  void LookForCalls(v1::ToolSyntax syntax) { parser_.emplace(syntax); }
  void Take(const v1::GenerateResponse& message);
  // Takes the prompt's log-probabilities from another choice's message. Call it before this
  // choice's own tokens arrive.
  void TakePromptLogprobs(const v1::GenerateResponse& message);

  int64_t prompt_tokens() const { return prompt_tokens_; }          // 0: unknown
  int64_t completion_tokens() const { return completion_tokens_; }  // so far
  // The members about the prompt that a chat response has besides its choices, as JSON. Each is
  // returned once. Empty: none.
  std::string GivePromptIds();
  std::string GivePromptLogprobs();

  // For a stream: what arrived since the last call, as JSON. nullopt if that is not worth an event.
  std::optional<std::string> TakeDelta();

  // For a complete response, instead of TakeDelta: everything as JSON. Call it once.
  std::string TakeWhole();
  // The approximate size of the JSON that TakeDelta or TakeWhole would return now.
  size_t bytes() const;

 private:
  // Comma-separated elements of JSON lists.
  struct LogprobTexts {
    std::string tokens;  // the only list of a chat; its elements have all details
    std::string values, tops, offsets;
    bool any_top = false;
  };

  void TakeText(const std::string& text, bool last);
  void TakeLogprob(const v1::TokenLogprob& token, int32_t most_top);
  void TakePromptLogprob(const v1::TokenLogprob& token);
  void TakePrompt(const v1::GenerateResponse& message);
  Json TakeCalls(bool numbered);
  // Returns the log-probabilities taken so far as JSON, or null if there are none.
  std::string GiveLogprobs();
  Json FinishJson() const;
  // Returns `choice` with its logprobs and its finish_reason added.
  std::string WithEnd(const Json& choice);

  const OpenAiEndpoint endpoint_;
  const std::string id_;
  const int64_t index_;
  const PromptParts parts_;
  std::optional<ToolCallParser> parser_;

  // Not returned yet.
  std::string text_;
  std::vector<ToolCall> calls_;
  LogprobTexts logprobs_;
  // Comma-separated elements of JSON lists.
  std::string prompt_ids_, prompt_logprobs_, token_ids_;

  int64_t prompt_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  bool prompt_token_due_;  // the next logprob is of the first prompt token
  bool role_sent_ = false;
  bool echo_sent_ = false;
  int64_t calls_taken_ = 0;
  int64_t offset_ = 0;  // in characters, of the tokens whose logprobs were taken
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_RESPONSE_H_
