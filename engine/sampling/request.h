// What a generation asks for and what it gives back, in the engine's own types.
#ifndef TIDEPOOL_ENGINE_SAMPLING_REQUEST_H_
#define TIDEPOOL_ENGINE_SAMPLING_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace tidepool::engine {

// Every field resolved: model defaults applied, a seed drawn. temperature 0 is greedy.
struct SamplingParams {
  float temperature = 0;
  int32_t top_k = 0;  // 0: all
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  float repetition_penalty = 1;  // over prompt and output tokens
  float frequency_penalty = 0;   // over output tokens
  float presence_penalty = 0;    // over output tokens
  std::vector<std::pair<int32_t, float>> logit_bias;

  // INVALID_ARGUMENT names the field, its value and the accepted range (NaN and infinities
  // included).
  absl::Status Validate(int vocab_size) const;
};

struct StoppingParams {
  int64_t max_tokens = 0;  // output tokens; 0: the prompt is computed, and nothing is drawn
  // No end-of-generation or stop token is drawn before so many output tokens, and no stop string is
  // looked for in their text.
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;  // deliver the stop string's text too

  absl::Status Validate(int vocab_size) const;
};

// The output tokens of a generation: what was asked for, and no more than the room that the context
// or the session has. Without `asked` all the room. This is the only limit on max_tokens.
int64_t LimitMaxTokens(std::optional<int64_t> asked, int64_t room);

inline constexpr int32_t kMaxTopLogprobs = 20;

struct GenerationRequest {
  // The prompt, then output tokens made before (by an earlier attempt): generation goes on behind
  // them as if nothing had happened. Requires: prompt_length in [1, token_ids.size()].
  std::vector<int32_t> token_ids;
  int64_t prompt_length = 0;
  // Which of a request's n choices this is: part of the random draws' counter.
  int32_t choice = 0;
  SamplingParams sampling;
  StoppingParams stopping;
  // Report the log-probability of each output token, and of this many alternatives.
  bool logprobs = false;
  int32_t top_logprobs = 0;
  // Report the log-probability of each prompt token, and of this many alternatives. Each one takes
  // one credit. KV of the prompt is computed, not found in a cache.
  std::optional<int32_t> prompt_logprobs;
  // The first prompt token to report; those before it were reported by an earlier attempt.
  int64_t prompt_logprobs_from = 0;
  bool progress = false;                               // report how far the prompt is computed
  int32_t priority = 0;                                // higher first
  absl::Duration deadline = absl::InfiniteDuration();  // of the engine's monotonic clock
  // Tokens that may be made before the caller grants more; counts from the first new token.
  int64_t credit = 256;
  std::string principal;  // whom it is for: those of equal priority share the engine fairly
  // Separates prefix caches of callers that must not see each other's timing; part of block hashes.
  std::string cache_salt;

  // INVALID_ARGUMENT names the field, its value and the accepted range; a prompt past the context
  // too.
  absl::Status Validate(int vocab_size, int64_t context_length) const;
};

// Log-softmax of the model's logits, before bias, penalties and temperature.
struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
  // Of a prompt token: its place among all tokens, the most probable at 1, ties to the lower id. 0:
  // of the first prompt token, which has no log-probability; or of an output token.
  int32_t rank = 0;
  std::vector<std::pair<int32_t, float>> top;  // descending
};

enum class FinishReason : uint8_t {
  kStop,        // an end-of-generation token or a stop token
  kStopString,  // a stop string
  kLength,      // max_tokens, or the context is full
  kCancelled,
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens whose KV was found
  int64_t completion_tokens = 0;
  absl::Duration queue_time;    // until it is first planned
  absl::Duration prefill_time;  // until the first token
  absl::Duration decode_time;   // until the last
  // This request's shares of what its forward passes cost, by its rows of each batch. Summed over
  // all requests they are the engine's totals.
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  int64_t expert_demand_bytes = 0;  // read because a pass waited for them
  absl::Duration expert_stall_time;
};

// How much of a prompt is computed.
struct PromptProgress {
  int64_t total = 0;           // prompt tokens
  int64_t cached = 0;          // of these, found in a cache
  int64_t processed = 0;       // of these, computed or found
  absl::Duration since_start;  // since its first step was planned
};

// The next tokens of a stream. Positions count output tokens from 0, earlier attempts included.
struct StreamChunk {
  int64_t position = 0;  // of token_ids[0]
  std::vector<int32_t> token_ids;
  std::string text;  // whole UTF-8 characters only; may be empty beside tokens, or come late
  std::vector<TokenLogprob> logprobs;
  // Of consecutive prompt tokens, the first of which is prompt_position.
  int64_t prompt_position = 0;
  std::vector<TokenLogprob> prompt_logprobs;
  std::optional<PromptProgress> progress;  // the latest
  std::optional<FinishReason> finish;      // set in the last chunk only
  Usage usage;                             // complete in the last chunk only
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_REQUEST_H_
