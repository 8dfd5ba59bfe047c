// Arithmetic over a row of logits: the largest one, the weights of a softmax, and a random draw.
//
// Every machine computes the same results: only IEEE operations are used, and sums have a fixed
// order. They are not computed from left to right, because each addition would then wait for the
// one before it.
#ifndef TIDEPOOL_ENGINE_SAMPLING_WEIGHTS_H_
#define TIDEPOOL_ENGINE_SAMPLING_WEIGHTS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::engine {

// Returns the largest logit, and the first one that is +infinity or NaN.
kernels::ArgMax FindBest(absl::Span<const float> logits);

// Returns e^((logit - best) / temperature) of each logit, with an error of at most 3 ulp. Weights
// below e^-87 become 0. The result is in `memory`, which only grows. Requires: best is finite and
// at least every logit, and temperature > 0.
absl::Span<const float> ComputeWeights(absl::Span<const float> logits, float best,
                                       float temperature, std::vector<float>* memory);

double SumWeights(absl::Span<const float> weights);

// Returns the index of the first weight such that the sum up to it is more than the share `random`
// of the sum of all weights. `sums` is scratch memory. Requires: 0 <= random < 1, weights are
// non-negative, and some weight is positive.
size_t DrawIndex(absl::Span<const float> weights, double random, std::vector<double>* sums);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SAMPLING_WEIGHTS_H_
