// Sampler: one row of logits and a request's parameters > the next token.
//
// Order: logit bias, repetition, frequency and presence penalties, temperature, min_p, top_k,
// top_p, draw. temperature 0 takes the best token after bias and penalties. Ties go to the lower
// id. The draw is Philox4x32-10 with key `seed` and counter (position, choice): it depends on
// nothing else. exp and log are our own and sums have one order, so equal logits give equal tokens
// everywhere.
//
// Reported log-probabilities are those of the model itself: log-softmax of the logits before any of
// the above.
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

// How often each token was seen: what penalties read. Plain data.
class TokenCounts {
 public:
  void AddPrompt(int32_t token) { outputs_.try_emplace(token, 0); }
  void AddOutput(int32_t token) { ++outputs_[token]; }
  // Occurrences in the output of every token of prompt or output.
  const absl::flat_hash_map<int32_t, int32_t>& outputs() const { return outputs_; }

 private:
  absl::flat_hash_map<int32_t, int32_t> outputs_;
};

struct SampleInput {
  const SamplingParams* params = nullptr;
  const TokenCounts* counts = nullptr;  // may stay empty when no penalty is on
  int32_t choice = 0;
  int64_t position = 0;                 // of the token to come, among output tokens
  absl::Span<const int32_t> forbidden;  // tokens that are not drawn
  std::optional<int32_t>
      top_logprobs;  // set: report the token's log-probability and that many more
};

struct SampledToken {
  int32_t token_id = 0;
  std::optional<TokenLogprob> logprob;
};

// Whether penalties are on, so that counts must be kept.
bool NeedsTokenCounts(const SamplingParams& params);

// Whether the token is the best of the model's own logits, whatever the others are.
bool NeedsOnlyArgMax(const SamplingParams& params);

// The token of NeedsOnlyArgMax's params, from the best of the logits in place of all. Errors are
// Sampler::Sample's.
absl::StatusOr<int32_t> ArgMaxToken(const kernels::ArgMax& best);

// Thread-compatible: holds scratch of a few vocabularies.
class Sampler {
 public:
  // Requires: valid params. INTERNAL names the token id when a logit is NaN or +infinity, or when
  // all are -infinity: the model's arithmetic went wrong, and no token would be an honest answer.
  absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits, const SampleInput& input);

  // What the logits say of `token`, which is given, with its rank and `top` alternatives. INTERNAL
  // as Sample.
  absl::StatusOr<TokenLogprob> Score(absl::Span<const float> logits, int32_t token, int32_t top);

 private:
  struct Candidate {
    float value = 0;  // a logit, then a weight: its exp relative to the best
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
