// Samplers that remove candidates: top-n-sigma, locally typical sampling and XTC. The values of the
// candidates are weights, which need not add up to 1. The functions do not change the order of the
// candidates, and always keep at least one. Their sums have a fixed order, so the results are the
// same on every machine. Requires: there is at least one candidate.
#ifndef TIDEPOOL_ENGINE_SAMPLING_TRUNCATION_H_
#define TIDEPOOL_ENGINE_SAMPLING_TRUNCATION_H_

#include <vector>

#include "absl/types/span.h"
#include "engine/sampling/candidate.h"

namespace tidepool::engine {

// Returns the sum of the weights, added in the order of the candidates.
double TotalWeight(const std::vector<Candidate>& candidates);

// Keeps the candidates whose logit is at least best - n * sigma. `best` is the largest logit, and
// sigma is the standard deviation of all logits that are not -infinity. Source: arXiv 2411.07641.
void KeepTopNSigma(absl::Span<const float> logits, float best, float n,
                   std::vector<Candidate>* candidates);

// The values from which the weights of candidates were computed.
struct Softmax {
  absl::Span<const float> logits;
  float best = 0;  // the largest logit
  float temperature = 1;
};

// A candidate's distance is the difference between its information, -ln p, and the entropy of all
// candidates. Keeps the candidates of the smallest distances whose probabilities together reach
// `mass`. Candidates of equal distances are kept or removed together. `distances` is scratch
// memory. Source: arXiv 2202.00666.
void KeepTypical(const Softmax& softmax, float mass, std::vector<Candidate>* candidates,
                 std::vector<float>* distances);

// Implements XTC (exclude top choices), for a step in which it acts: the caller draws whether it
// does. Removes all candidates whose probability is at least `threshold`, except the last of these
// in the order of Better. Source: oobabooga/text-generation-webui#6335.
void ExcludeTopChoices(float threshold, std::vector<Candidate>* candidates);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_TRUNCATION_H_
