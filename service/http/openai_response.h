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
};
// With all four on experts, which OpenAI's does not have, where the model has any.
Json UsageJson(const AnswerUsage& usage);

// A whole answer, of choices that TakeWhole gave, which it consumes.
std::string AnswerText(const AnswerHead& head, std::vector<std::string> choices,
                       const AnswerUsage& usage);
// Of one event of a stream; `choice` is TakeDelta's, or empty, as in the last one, which carries the
// usage. `usage` is JSON; empty: it has none.
std::string ChunkText(const AnswerHead& head, absl::string_view choice, absl::string_view usage);

// One event of text/event-stream (https://html.spec.whatwg.org/multipage/server-sent-events.html).
std::string SseEvent(absl::string_view json);
inline constexpr char kSseDone[] = "data: [DONE]\n\n";

// One choice, from its messages to its JSON. What is taken of logprobs is kept as the text that it
// becomes, an order of magnitude smaller. Thread-compatible.
class ChoiceRenderer {
 public:
  // `id` of the answer: names calls of tools. `echo` is what the text begins with.
  ChoiceRenderer(const AnswerHead& head, int64_t index, const std::string& echo);

  // Before the first message.
  void LookForCalls(v1::ToolSyntax syntax) { parser_.emplace(syntax); }
  void Take(const v1::GenerateResponse& message);

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
  void TakeLogprob(const v1::TokenLogprob& token);
  Json TakeCalls(bool numbered);
  // As JSON, of what was taken; null: of none.
  std::string GiveLogprobs();
  Json FinishJson() const;
  // `choice` with its logprobs and its finish_reason.
  std::string WithEnd(const Json& choice);

  const OpenAiEndpoint endpoint_;
  const std::string id_;
  const int64_t index_;
  std::optional<ToolCallParser> parser_;

  // Not given yet.
  std::string text_;
  std::vector<ToolCall> calls_;
  LogprobTexts logprobs_;

  bool role_sent_ = false;
  int64_t calls_taken_ = 0;
  int64_t offset_ = 0;  // characters of the tokens whose logprobs were taken
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_RESPONSE_H_
