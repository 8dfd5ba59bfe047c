// Answers in OpenAI's shapes, whole or as chunks of a stream.
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

// What all chunks of an answer begin with.
struct AnswerHead {
  OpenAiEndpoint endpoint = OpenAiEndpoint::kCompletions;
  std::string id;
  std::string model;
  int64_t created = 0;  // Unix seconds
};

// Tokens of an answer: each prompt counts once, however many choices it has.
struct AnswerUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  // Of the passes that all choices took.
  bool has_experts = false;  // the model has
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  int64_t expert_demand_bytes = 0;
  double expert_stall_seconds = 0;
  // Of all prompts, and of all choices.
  double prefill_seconds = 0;
  double decode_seconds = 0;
};
// The token counts so far. The number of cached tokens is known only at the end.
Json TokensJson(int64_t prompt_tokens, int64_t completion_tokens);
// With all four on experts, which OpenAI's does not have, where the model has any.
Json UsageJson(const AnswerUsage& usage);
// As llama.cpp's server names them: what was computed of prompts, what was found in the cache, what
// was made, and the times.
Json TimingsJson(const AnswerUsage& usage);
// As llama.cpp's server has it in a stream with return_progress.
Json ProgressJson(const v1::PromptProgress& progress);

// Members of an answer or a chunk beside its choices and usage, as JSON; empty: it has none.
struct AnswerExtras {
  std::string prompt_token_ids;
  std::string prompt_logprobs;
  std::string prompt_progress;
  std::string timings;
};

// A whole answer, of choices that TakeWhole gave, which it consumes.
std::string AnswerText(const AnswerHead& head, std::vector<std::string> choices,
                       const AnswerUsage& usage, const AnswerExtras& extras = {});
// Of one event of a stream; `choice` is TakeDelta's, or empty, as in the last one, which carries
// the usage. `usage` is JSON; empty: it has none.
std::string ChunkText(const AnswerHead& head, absl::string_view choice, absl::string_view usage,
                      const AnswerExtras& extras = {});

// One event of text/event-stream (https://html.spec.whatwg.org/multipage/server-sent-events.html).
std::string SseEvent(absl::string_view json);
inline constexpr char kSseDone[] = "data: [DONE]\n\n";
// Which readers of events skip.
inline constexpr char kSseComment[] = ": the response is being computed\n\n";

// One choice, from its messages to its JSON. What is taken of logprobs is kept as the text that it
// becomes, an order of magnitude smaller. Thread-compatible.
class ChoiceRenderer {
 public:
  // `id` of the answer: names calls of tools.
  ChoiceRenderer(const AnswerHead& head, int64_t index, const PromptParts& parts);

  // Before the first message.
  void LookForCalls(v1::ToolSyntax syntax) { parser_.emplace(syntax); }
  void Take(const v1::GenerateResponse& message);
  // Log-probabilities of the prompt alone, of a choice that shares it. Before its own tokens.
  void TakePromptLogprobs(const v1::GenerateResponse& message);

  int64_t prompt_tokens() const { return prompt_tokens_; }          // 0: not told yet
  int64_t completion_tokens() const { return completion_tokens_; }  // so far
  // The prompt's parts, as JSON, that a chat has beside its choices; each once, empty: there is
  // none.
  std::string GivePromptIds();
  std::string GivePromptLogprobs();

  // What came since the last time as JSON, for a stream; nullopt: nothing worth an event.
  std::optional<std::string> TakeDelta();

  // Everything as JSON, for a whole answer, instead of TakeDelta. Once.
  std::string TakeWhole();
  // About as many as the JSON of what TakeDelta or TakeWhole would give now.
  size_t bytes() const;

 private:
  // Elements of JSON's lists, with commas between them.
  struct LogprobTexts {
    std::string tokens;  // the only list of a chat: with all about each
    std::string values, tops, offsets;
    bool any_top = false;
  };

  void TakeText(const std::string& text, bool last);
  void TakeLogprob(const v1::TokenLogprob& token, int32_t most_top);
  void TakePromptLogprob(const v1::TokenLogprob& token);
  void TakePrompt(const v1::GenerateResponse& message);
  Json TakeCalls(bool numbered);
  // As JSON, of what was taken; null: of none.
  std::string GiveLogprobs();
  Json FinishJson() const;
  // `choice` with its logprobs and its finish_reason.
  std::string WithEnd(const Json& choice);

  const OpenAiEndpoint endpoint_;
  const std::string id_;
  const int64_t index_;
  const PromptParts parts_;
  std::optional<ToolCallParser> parser_;

  // Not given yet.
  std::string text_;
  std::vector<ToolCall> calls_;
  LogprobTexts logprobs_;
  // Elements of JSON's lists.
  std::string prompt_ids_, prompt_logprobs_, token_ids_;

  int64_t prompt_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  bool prompt_token_due_;  // the first logprob is the prompt's first token's
  bool role_sent_ = false;
  bool echo_sent_ = false;
  int64_t calls_taken_ = 0;
  int64_t offset_ = 0;  // characters of the tokens whose logprobs were taken
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_RESPONSE_H_
