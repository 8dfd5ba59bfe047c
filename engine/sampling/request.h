// The request and the results of a generation, in the engine's own types.
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

// All fields are resolved: model defaults are applied, and the seed is drawn. temperature 0 is
// greedy.
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
  int64_t max_tokens = 0;  // output tokens; 0: compute the prompt and sample nothing
  // Before this number of output tokens, no end-of-generation or stop token is sampled, and stop
  // strings are ignored in their text.
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;  // also return the stop string's text

  absl::Status Validate(int vocab_size) const;
};

// Returns the maximum number of output tokens: `asked`, but at most the room in the context or
// session. Without `asked`: all of the room. Nothing else limits max_tokens.
int64_t LimitMaxTokens(std::optional<int64_t> asked, int64_t room);

inline constexpr int32_t kMaxTopLogprobs = 20;

struct GenerationRequest {
  // The prompt, then output tokens of an earlier attempt. Generation continues after them as if it
  // had not been interrupted. Requires: prompt_length in [1, token_ids.size()].
  std::vector<int32_t> token_ids;
  int64_t prompt_length = 0;
  // Index among the request's n choices. Part of the random counter.
  int32_t choice = 0;
  SamplingParams sampling;
  StoppingParams stopping;
  // Report the log-probability of each output token, and of this many alternatives.
  bool logprobs = false;
  int32_t top_logprobs = 0;
  // Report the log-probability of each prompt token, and of this many alternatives. Each reported
  // token uses one credit. The KV of these tokens is computed, not taken from a cache.
  std::optional<int32_t> prompt_logprobs;
  // The first prompt token to report. An earlier attempt reported the ones before it.
  int64_t prompt_logprobs_from = 0;
  bool progress = false;                               // report how far the prompt is computed
  int32_t priority = 0;                                // higher goes first
  absl::Duration deadline = absl::InfiniteDuration();  // on the engine's monotonic clock
  // Tokens that may be generated before the caller grants more, counted from the first new token.
  int64_t credit = 256;
  std::string principal;  // the caller; principals share the engine fairly within a priority
  // Separates the prefix caches of callers that must not observe each other's timing. Part of block
  // hashes.
  std::string cache_salt;

  // INVALID_ARGUMENT names the field, its value and the accepted range. It also covers a prompt
  // longer than the context.
  absl::Status Validate(int vocab_size, int64_t context_length) const;
};

// Log-softmax of the model's logits, before bias, penalties and temperature.
struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
  // For a prompt token: its rank among all tokens by probability, from 1, with ties to the lower
  // id. 0 for the first prompt token, which has no log-probability, and for output tokens.
  int32_t rank = 0;
  std::vector<std::pair<int32_t, float>> top;  // descending
};

enum class FinishReason : uint8_t {
  kStop,        // an end-of-generation token or a stop token
  kStopString,  // a stop string
  kLength,      // max_tokens was reached, or the context is full
  kCancelled,
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // prompt tokens whose KV was in the cache
  int64_t completion_tokens = 0;
  absl::Duration queue_time;    // until its first step was planned
  absl::Duration prefill_time;  // until the first token
  absl::Duration decode_time;   // until the last
  // This request's share of the cost of its forward passes, in proportion to its rows. The sums
  // over all requests equal the engine's totals.
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  int64_t expert_demand_bytes = 0;  // read while a pass waited
  absl::Duration expert_stall_time;
};

// How much of a prompt was computed.
struct PromptProgress {
  int64_t total = 0;           // prompt tokens
  int64_t cached = 0;          // prompt tokens found in a cache
  int64_t processed = 0;       // prompt tokens computed or found
  absl::Duration since_start;  // since its first step was planned
};

// The next tokens of a stream. Positions count output tokens from 0, including earlier attempts.
struct StreamChunk {
  int64_t position = 0;  // of token_ids[0]
  std::vector<int32_t> token_ids;
  std::string text;  // whole UTF-8 characters; may be empty or belong to earlier tokens
  std::vector<TokenLogprob> logprobs;
  // For consecutive prompt tokens, beginning with prompt_position.
  int64_t prompt_position = 0;
  std::vector<TokenLogprob> prompt_logprobs;
  std::optional<PromptProgress> progress;  // the latest
  std::optional<FinishReason> finish;      // only set in the last chunk
  Usage usage;                             // only complete in the last chunk
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_REQUEST_H_
