// The request and the results of a generation, in the engine's own types.
#ifndef TIDEPOOL_ENGINE_SAMPLING_REQUEST_H_
#define TIDEPOOL_ENGINE_SAMPLING_REQUEST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "engine/grammar/marker.h"

namespace tidepool::engine {

namespace grammar {
class Grammar;
class TokenTrie;
}  // namespace grammar

// All fields have final values: the model's defaults are filled in, and a seed was drawn if the
// request has none. A temperature of 0 means greedy.
struct SamplingParams {
  float temperature = 0;
  int32_t top_k = 0;  // 0: no limit
  float top_p = 1;
  float min_p = 0;
  uint64_t seed = 0;
  float repetition_penalty = 1;  // applies to prompt and output tokens
  float frequency_penalty = 0;   // applies to output tokens
  float presence_penalty = 0;    // applies to output tokens
  std::vector<std::pair<int32_t, float>> logit_bias;
  float typical_p = 1;    // 1: keeps all tokens
  float top_n_sigma = 0;  // 0: keeps all tokens
  float xtc_probability = 0;
  float xtc_threshold = 0.1f;
  float dry_multiplier = 0;  // 0: no DRY
  float dry_base = 1.75f;
  int32_t dry_allowed_length = 2;
  int32_t dry_penalty_last_n = -1;  // applies to these last tokens; 0: no DRY; -1: all tokens
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  std::vector<std::string> bad_words;
  std::vector<int32_t> allowed_token_ids;  // empty: all tokens

  // Returns INVALID_ARGUMENT with the field, its value and the accepted range. NaN and infinities
  // are refused, too.
  absl::Status Validate(int vocab_size) const;
};

// Returns whether DRY is on.
bool UsesDry(const SamplingParams& params);

struct StoppingParams {
  int64_t max_tokens = 0;  // maximum output tokens; 0: compute the prompt and sample nothing
  // Minimum number of output tokens. Until it is reached, no end-of-generation token and no stop
  // token is sampled, and stop strings are ignored in the text.
  int64_t min_tokens = 0;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  bool include_stop = false;  // also return the text of the stop string
  // The control tokens whose names are a part of the text. Other control tokens have no text.
  std::vector<int32_t> shown_tokens;

  absl::Status Validate(int vocab_size) const;
};

// Returns the maximum number of output tokens: `asked`, limited to `room`, which is the room in the
// context or session. If `asked` is not set, returns `room`. This is the only limit on max_tokens.
int64_t LimitMaxTokens(std::optional<int64_t> asked, int64_t room);

inline constexpr int32_t kMaxTopLogprobs = 20;

// A limit on the tokens of reasoning at the beginning of a response.
struct ReasoningLimit {
  bool open = false;  // the prompt ends inside of the reasoning
  // If `open` is false: the reasoning begins with this text, or with these tokens. Not empty.
  std::string begin;
  std::vector<int32_t> begin_tokens;
  grammar::Marker end;
  int64_t max_tokens = 0;
  // The tokens of the end marker. They follow after max_tokens tokens of reasoning. Not empty.
  std::vector<int32_t> end_tokens;
};

struct GenerationRequest {
  // The prompt, followed by the output tokens of an earlier attempt. Generation continues after
  // them as if there had been no interruption. Requires: prompt_length in [1, token_ids.size()].
  std::vector<int32_t> token_ids;
  int64_t prompt_length = 0;
  // Index of this choice among the request's n choices. It is a part of the counter from which
  // Philox computes random numbers (sampler.h).
  int32_t choice = 0;
  SamplingParams sampling;
  StoppingParams stopping;
  // If set, the output matches this grammar. With it or `reasoning_limit`, `token_trie` is the trie
  // of the vocabulary.
  std::shared_ptr<const grammar::Grammar> grammar;
  std::optional<ReasoningLimit> reasoning_limit;
  std::shared_ptr<const grammar::TokenTrie> token_trie;
  // `logprobs` says whether to report the log-probability of each output token. `top_logprobs` is
  // the number of alternatives to report for each. With `processed_logprobs`, log-probabilities are
  // those of the distribution from which the token was drawn (sampler.h).
  bool logprobs = false;
  int32_t top_logprobs = 0;
  bool processed_logprobs = false;
  // If set, report the log-probability of each prompt token, and this number of alternatives. Each
  // reported token uses one credit. The KV of these tokens is computed and not taken from a cache.
  std::optional<int32_t> prompt_logprobs;
  // The first prompt token to report. An earlier attempt reported the tokens before it.
  int64_t prompt_logprobs_from = 0;
  bool progress = false;                               // report how many prompt tokens are computed
  int32_t priority = 0;                                // requests with a higher priority run first
  absl::Duration deadline = absl::InfiniteDuration();  // on the engine's monotonic clock
  // Number of new tokens that may be generated before the caller must grant more. Output tokens of
  // earlier attempts do not count.
  int64_t credit = 256;
  std::string principal;  // the caller; principals of the same priority share the engine fairly
  // Separates the prefix caches of callers that must not observe each other's timing. The block
  // hashes include it.
  std::string cache_salt;

  // Returns INVALID_ARGUMENT with the field, its value and the accepted range. A prompt that is
  // longer than the context is also refused.
  absl::Status Validate(int vocab_size, int64_t context_length) const;
};

// A token's log-softmax of the model's logits, before bias, penalties and temperature; or that of
// an output token after them, if the request has processed_logprobs.
struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;
  // For a prompt token: the token's rank among all tokens by probability, from 1. Among equally
  // probable tokens the lower id has the better rank. 0 for output tokens, and for the first prompt
  // token, which has no log-probability.
  int32_t rank = 0;
  std::vector<std::pair<int32_t, float>> top;  // alternatives, most probable first
};

enum class FinishReason : uint8_t {
  kStop,        // an end-of-generation token or a stop token
  kStopString,  // a stop string
  kLength,      // max_tokens was reached, or the context is full
  kCancelled,
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // number of prompt tokens whose KV was in the cache
  int64_t completion_tokens = 0;
  absl::Duration queue_time;    // until the first step with this request was planned
  absl::Duration prefill_time;  // from then until the first token
  absl::Duration decode_time;   // from then until the last token
  // This request's share of the costs of its forward passes, in proportion to its rows. The shares
  // of all requests sum to the engine's totals.
  int64_t expert_hits = 0;
  int64_t expert_misses = 0;
  int64_t expert_demand_bytes = 0;  // bytes read while a pass waited for them
  absl::Duration expert_stall_time;
};

// How much of a prompt was computed.
struct PromptProgress {
  int64_t total = 0;           // number of prompt tokens
  int64_t cached = 0;          // number of prompt tokens that were found in a cache
  int64_t processed = 0;       // number of prompt tokens that were computed or found
  absl::Duration since_start;  // time since the first step with this request was planned
};

// The next tokens of a stream. Positions count output tokens from 0; the tokens of earlier attempts
// count, too.
struct StreamChunk {
  int64_t position = 0;  // position of token_ids[0]
  std::vector<int32_t> token_ids;
  // whole UTF-8 characters; may be empty, and may include characters of earlier tokens
  std::string text;
  std::vector<TokenLogprob> logprobs;
  // Log-probabilities of consecutive prompt tokens. The first one is at prompt_position.
  int64_t prompt_position = 0;
  std::vector<TokenLogprob> prompt_logprobs;
  std::optional<PromptProgress> progress;  // the latest progress
  std::optional<FinishReason> finish;      // only set in the last chunk
  Usage usage;                             // complete only in the last chunk
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_REQUEST_H_
