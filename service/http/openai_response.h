// Formats responses in OpenAI's format, either complete or as chunks of a stream.
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
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// The fields at the beginning of each chunk of a response.
struct ResponseHead {
  OpenAiEndpoint endpoint = OpenAiEndpoint::kCompletions;
  std::string id;
  std::string model;
  int64_t created = 0;  // Unix seconds
};

// The usage of a response. Each prompt is counted once, even if it has several choices.
struct ResponseUsage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t completion_tokens = 0;
  // Expert statistics, summed over the forward passes of all choices.
  bool has_experts = false;  // the model has experts
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  int64_t expert_demand_bytes = 0;
  double expert_stall_seconds = 0;
  // Times, summed over all prompts and all choices.
  double prefill_seconds = 0;
  double decode_seconds = 0;
  bool has_reasoning = false;  // the model's responses can contain reasoning
  int64_t reasoning_tokens = 0;
};
// Returns the token counts so far. The number of cached tokens is not included, because it is known
// only at the end.
Json TokensJson(int64_t prompt_tokens, int64_t completion_tokens);
// Returns the usage. If the model has experts, it includes the expert statistics, which OpenAI's
// format does not have.
Json UsageJson(const ResponseUsage& usage);
// Returns the numbers of computed, cached and generated tokens, and the times. The names are those
// of llama.cpp's server.
Json TimingsJson(const ResponseUsage& usage);
// Returns the progress of a prompt, for a stream with return_progress. The format is that of
// llama.cpp's server.
Json ProgressJson(const v1::PromptProgress& progress);

// More members of a response or a chunk, in addition to its choices and usage. Each is JSON text.
// An empty member is left out.
struct ResponseExtras {
  std::string prompt_token_ids;
  std::string prompt_logprobs;
  std::string prompt_progress;
  std::string timings;
};

// Returns a complete response. `choices` are the results of TakeWhole, and are consumed.
std::string ResponseText(const ResponseHead& head, std::vector<std::string> choices,
                         const ResponseUsage& usage, const ResponseExtras& extras = {});
// Returns one event of a stream. `choice` is the result of TakeDelta. It is empty in the last
// event, which has the usage. `usage` is JSON text, or empty.
std::string ChunkText(const ResponseHead& head, absl::string_view choice, absl::string_view usage,
                      const ResponseExtras& extras = {});

// Returns one event in the format text/event-stream
// (https://html.spec.whatwg.org/multipage/server-sent-events.html).
std::string SseEvent(absl::string_view json);
inline constexpr char kSseDone[] = "data: [DONE]\n\n";
// A comment. Programs that read event streams ignore it.
inline constexpr char kSseComment[] = ": the response is being computed\n\n";

// Converts the messages of one choice to JSON. Thread-compatible. Log-probabilities are kept as
// JSON text, which needs a tenth of the messages' memory.
class ChoiceRenderer {
 public:
  ChoiceRenderer(const ResponseHead& head, int64_t index, const PromptParts& parts);

  // Adds a message of this choice.
  void Take(const v1::GenerateResponse& message);
  // Adds the prompt's log-probabilities, from the message of another choice. Call it before this
  // choice's own tokens arrive.
  void TakePromptLogprobs(const v1::GenerateResponse& message);

  int64_t prompt_tokens() const { return prompt_tokens_; }          // 0: not known yet
  int64_t completion_tokens() const { return completion_tokens_; }  // until now
  // Return JSON about the prompt, which a chat response has beside its choices. Each part is
  // returned once. Empty: there is nothing to return.
  std::string GivePromptIds();
  std::string GivePromptLogprobs();

  // For a stream: returns the JSON for what arrived since the last call. Returns nullopt if nothing
  // arrived that needs an event.
  std::optional<std::string> TakeDelta();

  // For a complete response, instead of TakeDelta: returns everything as JSON. Call it once.
  std::string TakeWhole();
  // Returns the approximate size of the JSON that TakeDelta or TakeWhole would return now.
  size_t bytes() const;

 private:
  // The elements of JSON lists, separated by commas.
  struct LogprobTexts {
    std::string tokens;  // in a chat, this is the only list: its elements contain all values
    std::string values, tops, offsets;
    bool any_top = false;
  };

  // A chat response consists of events, any other response of text.
  void TakeEvent(const v1::OutputEvent& event);
  void TakeLogprob(const v1::TokenLogprob& token, int32_t max_top);
  void TakePromptLogprob(const v1::TokenLogprob& token);
  void TakePrompt(const v1::GenerateResponse& message);
  // Returns the pieces of tool calls for a stream, or the whole calls.
  Json TakeCallPieces();
  Json TakeCalls();
  // Returns the log-probabilities taken so far as JSON, or null if there are none.
  std::string GiveLogprobs();
  Json FinishJson() const;
  // Returns `choice` with its logprobs and its finish_reason added.
  std::string WithEnd(const Json& choice);

  const OpenAiEndpoint endpoint_;
  const int64_t index_;
  const PromptParts parts_;

  // Parts of the response that were not returned yet.
  std::string text_;
  std::string reasoning_;
  std::vector<v1::ToolCallDelta> calls_;  // the pieces of a call are adjacent
  LogprobTexts logprobs_;
  // The elements of JSON lists, separated by commas.
  std::string prompt_ids_, prompt_logprobs_, token_ids_;

  int64_t prompt_tokens_ = 0;
  int64_t completion_tokens_ = 0;
  bool prompt_token_due_;  // the next logprob belongs to the first prompt token
  bool role_sent_ = false;
  bool echo_sent_ = false;
  bool has_calls_ = false;
  // position in the text, in characters, after the tokens whose logprobs were added
  int64_t offset_ = 0;
  v1::FinishReason finish_ = v1::FINISH_REASON_UNSPECIFIED;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_OPENAI_RESPONSE_H_
