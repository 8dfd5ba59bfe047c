// Sampler: chooses the next token from one row of logits and a request's parameters.
//
// The steps, in order: logit bias; the tokens that a constraint allows; repetition, frequency and
// presence penalties; temperature; min_p; top_k; top_p; random draw. If the temperature is 0, the
// token with the largest logit after bias and penalties is chosen. If tokens are equal, the lower
// id is chosen. The draw uses Philox4x32-10 with key `seed` and counter (position, choice), and
// depends on nothing else. exp and log are our own functions, and sums have a fixed order. So equal
// logits give equal tokens on every machine.
//
// Reported log-probabilities are those of the model: the log-softmax of the logits before all of
// these steps.
#ifndef TIDEPOOL_ENGINE_SAMPLING_SAMPLER_H_
#define TIDEPOOL_ENGINE_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/grammar/token_mask.h"
#include "engine/sampling/request.h"
#include "kernels/backend.h"

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

struct SampleInput {
  const SamplingParams* params = nullptr;
  const TokenCounts* counts = nullptr;  // may be empty if there are no penalties
  int32_t choice = 0;
  int64_t position = 0;                 // position of the next token among the output tokens
  absl::Span<const int32_t> forbidden;  // tokens that must not be sampled
  const grammar::TokenMask* allowed = nullptr;  // if set, only these tokens may be sampled
  std::optional<int32_t>
      top_logprobs;  // if set, report the token's log-probability and this many alternatives
};

struct SampledToken {
  int32_t token_id = 0;
  std::optional<TokenLogprob> logprob;
};

// Returns whether there are penalties, so that counts are needed.
bool NeedsTokenCounts(const SamplingParams& params);

// Returns whether the sampled token is always the argmax of the model's own logits.
bool NeedsOnlyArgMax(const SamplingParams& params);

// Returns the sampled token, given only the argmax. Requires: NeedsOnlyArgMax is true for the
// params. Returns the same errors as Sampler::Sample.
absl::StatusOr<int32_t> ArgMaxToken(const kernels::ArgMax& best);

// Thread-compatible. Keeps scratch memory that is a few times as large as a row of logits.
class Sampler {
 public:
  // Samples a token. Requires: valid params. Returns INTERNAL with a token id if a logit is NaN or
  // +infinity, or if all logits are -infinity. The model's arithmetic is wrong in that case, so any
  // token would be meaningless.
  absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits, const SampleInput& input);

  // Returns the log-probability of the given `token`, its rank, and `top` alternatives. Returns the
  // same errors as Sample.
  absl::StatusOr<TokenLogprob> Score(absl::Span<const float> logits, int32_t token, int32_t top);

 private:
  struct Candidate {
    float value = 0;  // a logit; later a weight: exp(logit - best)
    int32_t id = 0;
  };
  static bool Better(const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  }

  absl::Span<const float> Adjust(absl::Span<const float> logits, const SampleInput& input);
  void KeepOnly(const grammar::TokenMask& allowed);
  void SelectTop(absl::Span<const float> logits, size_t count);
  void KeepTopP(double top_p);
  void SortFrom(size_t first);
  int32_t Draw(absl::Span<const float> logits, float best, const SampleInput& input);
  TokenLogprob Logprob(absl::Span<const float> logits, int32_t token, int32_t top);

  std::vector<float> adjusted_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> sorted_;
  std::vector<float> weights_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_SAMPLER_H_
