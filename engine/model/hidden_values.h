// Finds the first layer whose output is degenerate (not finite, or all zeros). So an error can name
// this layer, and not only the resulting logits.
#ifndef TIDEPOOL_ENGINE_MODEL_HIDDEN_VALUES_H_
#define TIDEPOOL_ENGINE_MODEL_HIDDEN_VALUES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// The layer number of the embedding's output.
inline constexpr int kEmbeddingLayer = -1;

// The value in zero_since for a row that is not all zeros.
inline constexpr int32_t kNotZero = -2;

// Checks the rows of the residual stream after a layer. `rows` is what ScanRows found in each row,
// with infinity as the limit. Must be called for the embedding first, then for each layer in order.
// If a number is NaN or infinite, returns INTERNAL with the layer and the first such number.
// Updates zero_since [rows.size()]: for each row, the layer after which the row became all zeros,
// or kNotZero.
absl::Status CheckHiddenValues(int layer, absl::Span<const kernels::RowScan> rows,
                               absl::Span<int32_t> zero_since);

// If zero_since is a layer, returns INTERNAL with this layer: the row has been all zeros since
// then, so all its logits are equal.
absl::Status CheckNotZero(int32_t zero_since);

// Returns INTERNAL if all logits of a row are equal.
absl::Status CheckLogits(kernels::ConstMatrixView logits);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_HIDDEN_VALUES_H_
