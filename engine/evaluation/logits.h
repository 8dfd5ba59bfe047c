// ComputeLogits: a model's logits over one sequence of tokens, without an Engine.
//
//   RETURN_IF_ERROR(ComputeLogits(bundle->model.get(), ids, {.rows = LogitRows::kAll},
//       [&](int64_t position, absl::Span<const float> logits) { return Write(logits); }));
#ifndef TIDEPOOL_ENGINE_EVALUATION_LOGITS_H_
#define TIDEPOOL_ENGINE_EVALUATION_LOGITS_H_

#include <cstdint>
#include <functional>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/model/transformer.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

enum class LogitRows : uint8_t { kLast, kAll };

// Rows [first_position, first_position + rows.rows) of the sequence as they leave the part of the
// graph called `name` (see LayerObserver; the part "norm" has only rows that logits are computed
// of). Chunks come one after the other, each with all its parts. An error ends the computation.
using PartSink = std::function<absl::Status(absl::string_view name, int64_t first_position,
                                            kernels::ConstMatrixView rows)>;

struct LogitsOptions {
  // Rows of one forward pass. Changes no bits. With kAll fewer are taken where that many rows of
  // logits would fill more than 64 MiB.
  int64_t chunk_rows = 512;
  LogitRows rows = LogitRows::kLast;
  // With kAll: those of this position and behind it only.
  int64_t first_position = 0;
  PartSink parts;  // may be empty
};

// The logits [vocab_size] after token `position`. An error ends the computation and is returned.
using LogitsSink =
    absl::FunctionRef<absl::Status(int64_t position, absl::Span<const float> logits)>;

// Gives `sink` the wanted rows in ascending order. Sets the model's observer, and clears it at the
// end, when options.parts is not empty. INVALID_ARGUMENT: no tokens, an id outside the vocabulary,
// more tokens than the model's context, chunk_rows below 1. Thread contract: as Model::Forward.
absl::Status ComputeLogits(TransformerModel* model, absl::Span<const int32_t> tokens,
                           const LogitsOptions& options, LogitsSink sink);

// INTERNAL names the first logit that is no finite number, as sound models have none.
absl::Status CheckFinite(int64_t position, absl::Span<const float> logits);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_EVALUATION_LOGITS_H_
