// Sampler: chooses the next token from one row of logits and a request's parameters.
//
// Order: logit bias, repetition, frequency and presence penalties, temperature, min_p, top_k,
// top_p, draw. temperature 0 takes the best token after bias and penalties. Ties go to the lower
// id. The draw uses Philox4x32-10 with key `seed` and counter (position, choice), and depends on
// nothing else. exp and log are our own, and sums have a fixed order, so equal logits give equal
// tokens everywhere.
//
// Reported log-probabilities are the model's: log-softmax of the logits before all of the above.
#ifndef TIDEPOOL_ENGINE_SAMPLING_SAMPLER_H_
#define TIDEPOOL_ENGINE_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/sampling/request.h"
#include "kernels/backend.h"

namespace tidepool::engine {

// How often each token occurred, for penalties. Plain data.
class TokenCounts {
 public:
  void AddPrompt(int32_t token) { outputs_.try_emplace(token, 0); }
  void AddOutput(int32_t token) { ++outputs_[token]; }
  // For every token of prompt or output: its number of occurrences in the output.
  const absl::flat_hash_map<int32_t, int32_t>& outputs() const { return outputs_; }

 private:
  absl::flat_hash_map<int32_t, int32_t> outputs_;
};

struct SampleInput {
  const SamplingParams* params = nullptr;
  const TokenCounts* counts = nullptr;  // may stay empty without penalties
  int32_t choice = 0;
  int64_t position = 0;                 // position of the next token among the output tokens
  absl::Span<const int32_t> forbidden;  // tokens that must not be sampled
  std::optional<int32_t>
      top_logprobs;  // set: report the token's log-probability, and this many alternatives
};

struct SampledToken {
  int32_t token_id = 0;
  std::optional<TokenLogprob> logprob;
};

// True if there are penalties, so that counts are needed.
bool NeedsTokenCounts(const SamplingParams& params);

// True if the result is always the argmax of the model's own logits.
bool NeedsOnlyArgMax(const SamplingParams& params);

// Returns the token for the params of NeedsOnlyArgMax, given the argmax only. Same errors as
// Sampler::Sample.
absl::StatusOr<int32_t> ArgMaxToken(const kernels::ArgMax& best);

// Thread-compatible. Keeps scratch memory for a few vocabularies.
class Sampler {
 public:
  // Requires: valid params. INTERNAL names the token id if a logit is NaN or +infinity, or if all
  // are -infinity: then the model's arithmetic is wrong, and any token would be meaningless.
  absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits, const SampleInput& input);

  // Returns the log-probability of the given `token`, its rank, and `top` alternatives. INTERNAL as
  // in Sample.
  absl::StatusOr<TokenLogprob> Score(absl::Span<const float> logits, int32_t token, int32_t top);

 private:
  struct Candidate {
    float value = 0;  // a logit, later a weight: exp(logit - best)
    int32_t id = 0;
  };
  static bool Better(const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.id < b.id;
  }

  absl::Span<const float> Adjust(absl::Span<const float> logits, const SampleInput& input);
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
