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

// Receives rows [first_position, first_position + rows.rows) of the output of the graph's part
// `name` (see LayerObserver; the part "norm" only has rows whose logits are computed). Chunks come
// one after the other, each with all its parts. An error stops the computation.
using PartSink = std::function<absl::Status(absl::string_view name, int64_t first_position,
                                            kernels::ConstMatrixView rows)>;

struct LogitsOptions {
  // Rows of one forward pass. Does not change the result. With kAll, fewer rows are used if their
  // logits would take more than 64 MiB.
  int64_t chunk_rows = 512;
  LogitRows rows = LogitRows::kLast;
  // With kAll: skip earlier positions.
  int64_t first_position = 0;
  PartSink parts;  // may be empty
};

// Receives the logits [vocab_size] after token `position`. An error stops the computation and is
// returned.
using LogitsSink =
    absl::FunctionRef<absl::Status(int64_t position, absl::Span<const float> logits)>;

// Passes the requested rows to `sink` in ascending order. If options.parts is set, sets the model's
// observer and clears it at the end. INVALID_ARGUMENT for no tokens, an id outside the vocabulary,
// more tokens than the model's context, or chunk_rows below 1. Same thread contract as
// Model::Forward.
absl::Status ComputeLogits(TransformerModel* model, absl::Span<const int32_t> tokens,
                           const LogitsOptions& options, LogitsSink sink);

// INTERNAL names the first logit that is not a finite number. Models without faults have none.
absl::Status CheckFinite(int64_t position, absl::Span<const float> logits);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_EVALUATION_LOGITS_H_
