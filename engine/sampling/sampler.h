// Sampler: chooses the next token from one row of logits and a request's parameters.
//
// The steps, in order:
//  1. logit bias
//  2. removal of all tokens that min_tokens, allowed_token_ids, bad_words or a constraint forbids.
//     It comes early, so that the later steps only see tokens that may be sampled.
//  3. repetition, frequency and presence penalties
//  4. DRY: it is a penalty too, so it comes before the steps that remove tokens, as in llama.cpp
//  5. top_n_sigma: on logits, before the temperature, because the temperature does not change the
//     result of this step
//  6. temperature: before all steps that look at probabilities, as in vLLM and transformers
//  7. min_p
//  8. top_k
//  9. typical_p: between top_k and top_p, as in llama.cpp
// 10. top_p
// 11. XTC: last, because it removes the most probable of the tokens that the other steps kept
// 12. random draw
// If the temperature is 0, the token with the largest logit after step 4 is chosen, and steps 5 to
// 12 do nothing. If the logits of tokens are equal, the lower id is chosen.
//
// Random numbers are from Philox4x32-10 with key `seed` and counter (position, choice, purpose),
// and depend on nothing else. The purpose is 0 for the draw, and 1 for whether XTC acts. exp and
// log are our own functions, and sums have a fixed order. So equal logits give equal tokens on
// every machine.
//
// Reported log-probabilities are those of the model: the log-softmax of the logits before all of
// these steps. Processed log-probabilities are those of the draw: the logarithms of the
// probabilities with which step 12 draws. If the temperature is 0, they are the log-softmax of the
// logits after step 4.
#ifndef TIDEPOOL_ENGINE_SAMPLING_SAMPLER_H_
#define TIDEPOOL_ENGINE_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/grammar/token_mask.h"
#include "engine/sampling/candidate.h"
#include "engine/sampling/dry.h"
#include "engine/sampling/request.h"
#include "engine/sampling/sampler_state.h"
#include "kernels/backend.h"

namespace tidepool::engine {

struct SampleInput {
  const SamplingParams* params = nullptr;
  const SamplerState* state = nullptr;  // the state after `tokens`, for `params`
  // The prompt and the output. Only read for DRY and bad_words.
  absl::Span<const int32_t> tokens;
  int32_t choice = 0;
  int64_t position = 0;                 // position of the next token among the output tokens
  absl::Span<const int32_t> forbidden;  // tokens that must not be sampled
  const grammar::TokenMask* allowed = nullptr;  // if set, only these tokens may be sampled
  std::optional<int32_t>
      top_logprobs;  // if set, report the token's log-probability and this number of alternatives
  bool processed_logprobs = false;
};

struct SampledToken {
  int32_t token_id = 0;
  std::optional<TokenLogprob> logprob;
};

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
  // token would be meaningless. Returns INVALID_ARGUMENT if the request's own limits leave no
  // token, and names them.
  absl::StatusOr<SampledToken> Sample(absl::Span<const float> logits, const SampleInput& input);

  // Returns the log-probability of the given `token`, its rank, and `top` alternatives. Returns the
  // same errors as Sample.
  absl::StatusOr<TokenLogprob> Score(absl::Span<const float> logits, int32_t token, int32_t top);

 private:
  absl::Span<const float> Adjust(absl::Span<const float> logits, const SampleInput& input);
  void AddPenalties(const SampleInput& input);
  void SelectTop(absl::Span<const float> logits, size_t count);
  void KeepTopP(double top_p, double total);
  void Truncate(absl::Span<const float> logits, float best, const SampleInput& input);
  void SortFrom(size_t first);
  int32_t Draw(absl::Span<const float> logits, float best, const SampleInput& input);
  void FindCandidates(absl::Span<const float> logits, float best, const SampleInput& input);
  // The token of an index into the span that Adjust returned.
  int32_t TokenAt(int32_t index) const { return only_ == nullptr ? index : only_->Nth(index); }
  TokenLogprob Logprob(absl::Span<const float> logits, int32_t token, int32_t top);
  // Like Score, for the distribution of the latest Draw.
  TokenLogprob DrawnLogprob(int32_t token, int32_t top);

  std::vector<float> adjusted_;
  std::vector<Candidate> candidates_;
  std::vector<Candidate> sorted_;
  std::vector<float> weights_;
  std::vector<float> top_logits_;
  std::vector<double> sums_;
  // For the current call: the size of the row of logits, and, if set, the only tokens whose logits
  // Adjust returned, in the order of their ids.
  size_t row_size_ = 0;
  const grammar::TokenMask* only_ = nullptr;
  DryPenalty dry_;
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_SAMPLER_H_
