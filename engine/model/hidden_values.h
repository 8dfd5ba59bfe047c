// Finds the first layer whose output is degenerate, so that an error can name this layer instead of
// the resulting logits.
#ifndef TIDEPOOL_ENGINE_MODEL_HIDDEN_VALUES_H_
#define TIDEPOOL_ENGINE_MODEL_HIDDEN_VALUES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// The layer number of the embedding's output.
inline constexpr int kEmbeddingLayer = -1;

// zero_since of a row that is not all zeros.
inline constexpr int32_t kNotZero = -2;

// Checks the residual stream x after a layer. INTERNAL names the layer and the first number that is
// NaN or infinite. Call it for the embedding first, then for each layer. zero_since [x.rows] has
// for each row the layer since which it is all zeros, or kNotZero.
absl::Status CheckHiddenValues(int layer, kernels::ConstMatrixView x,
                               absl::Span<int32_t> zero_since);

// INTERNAL names the layer since which a row is all zeros: then all its logits are equal.
absl::Status CheckNotZero(int32_t zero_since);

// INTERNAL if all logits of a row are equal.
absl::Status CheckLogits(kernels::ConstMatrixView logits);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_HIDDEN_VALUES_H_
