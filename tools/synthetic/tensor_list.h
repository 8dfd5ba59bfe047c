// The tensors of a synthetic model, and the values in their rows.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_TENSOR_LIST_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_TENSOR_LIST_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "tools/synthetic/random_blocks.h"
#include "tools/synthetic/routing.h"
#include "tools/synthetic/shape.h"

namespace tidepool::tools {

enum class RowKind : uint8_t { kRandom, kZero, kGiven };

struct Tensor {
  engine::GgufTensorPlan plan;
  float deviation = 0;  // of random weights; 0: all ones
  // The content of a row, if rows differ. For kGiven it writes the row's values. `random` is seeded
  // for this row. Called from any thread.
  std::function<RowKind(int64_t row, Random* random, absl::Span<float> values)> row;
  // The last columns of random rows, if they differ from the others.
  int64_t tail_columns = 0;
  std::function<void(Random* random, absl::Span<float> values)> tail;
};

struct TensorListOptions {
  engine::GgmlType type = engine::GgmlType::kQ4_K;
  RoutingTarget routing;
};

// Lists the tensors in the order of layers. Weights have the deviation of a fresh initialisation.
// With a routing target, there are these differences:
//  - The last channel of the residual stream is constant. Only a SlowHead of the first layer writes
//    to the channels before it (`slow`).
//  - The router's rows read the constant for the skew, `slow` for the persistence, and all other
//    channels for the rest.
//  - The experts of each layer widen the stream by the same factor, and the router's weights follow
//    it. So the mix is the same in all layers, and a layer's router sees most, but not all, of the
//    next router's input.
// INVALID_ARGUMENT: errors of SolveRouting; a target for a shape without experts, or too small.
absl::StatusOr<std::vector<Tensor>> ListTensors(const Shape& shape,
                                                const TensorListOptions& options);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_TENSOR_LIST_H_
