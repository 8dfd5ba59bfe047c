// SamplerState: what the samplers must know about the tokens of a sequence.
#ifndef TIDEPOOL_ENGINE_SAMPLING_SAMPLER_STATE_H_
#define TIDEPOOL_ENGINE_SAMPLING_SAMPLER_STATE_H_

#include <cstdint>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/sampling/dry.h"
#include "engine/sampling/dry_breakers.h"
#include "engine/sampling/request.h"
#include "engine/sampling/token_filter.h"

namespace tidepool::engine {

// Counts how often each token occurred, for the penalties. Plain data.
class TokenCounts {
 public:
  void AddPrompt(int32_t token) { outputs_.try_emplace(token, 0); }
  void AddOutput(int32_t token) { ++outputs_[token]; }
  // For each token that occurred in the prompt or the output: its number of occurrences in the
  // output.
  const absl::flat_hash_map<int32_t, int32_t>& outputs() const { return outputs_; }

 private:
  absl::flat_hash_map<int32_t, int32_t> outputs_;
};

// Returns whether there are penalties, so that counts are needed.
bool NeedsTokenCounts(const SamplingParams& params);

// Plain data. The state depends only on the parameters and the tokens added so far. It is empty if
// the parameters need no state.
struct SamplerState {
  // The state before the first token. Requires: valid parameters. INVALID_ARGUMENT if a bad word
  // has no tokens.
  static absl::StatusOr<SamplerState> Create(const SamplingParams& params,
                                             const Tokenizer& tokenizer, int vocab_size,
                                             DryBreakerCache* breakers);

  void AddPrompt(absl::Span<const int32_t> tokens);
  void AddOutput(int32_t token);

  std::optional<TokenCounts> counts;  // for penalties
  std::optional<DryHistory> dry;
  std::optional<TokenFilter> filter;  // for allowed_token_ids and bad_words
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_SAMPLER_STATE_H_
