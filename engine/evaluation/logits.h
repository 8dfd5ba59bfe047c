// ComputeLogits: computes a model's logits for one sequence of tokens. It needs no Engine.
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

// Receives the output of one part of the graph, which has the name `name` (see LayerObserver).
// `rows` are the positions [first_position, first_position + rows.rows). The part "norm" only has
// the rows whose logits are computed. All parts of one chunk are passed before the next chunk. If
// the function returns an error, the computation stops.
using PartSink = std::function<absl::Status(absl::string_view name, int64_t first_position,
                                            kernels::ConstMatrixView rows)>;

struct LogitsOptions {
  // Maximum rows of one forward pass. It does not change the result. With kAll, passes have fewer
  // rows if their logits would take more than 64 MiB.
  int64_t chunk_rows = 512;
  LogitRows rows = LogitRows::kLast;
  // With kAll: the first position whose logits are computed.
  int64_t first_position = 0;
  PartSink parts;  // may be empty
};

// Receives the logits [vocab_size] that follow the token at `position`. If it returns an error, the
// computation stops and returns that error.
using LogitsSink =
    absl::FunctionRef<absl::Status(int64_t position, absl::Span<const float> logits)>;

// Passes the requested rows to `sink` in ascending order. If options.parts is set, sets the model's
// observer, and removes it at the end. Returns INVALID_ARGUMENT if there are no tokens, if an id is
// outside the vocabulary, or if there are more tokens than the model's context. Also returns it if
// chunk_rows is less than 1. The thread contract is that of Model::Forward.
absl::Status ComputeLogits(TransformerModel* model, absl::Span<const int32_t> tokens,
                           const LogitsOptions& options, LogitsSink sink);

// Returns INTERNAL with the first logit that is not a finite number. A correct model has no such
// logit.
absl::Status CheckFinite(int64_t position, absl::Span<const float> logits);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_EVALUATION_LOGITS_H_
