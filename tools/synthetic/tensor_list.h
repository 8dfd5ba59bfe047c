// The tensors of a synthetic model, and what is in their rows.
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
  // What is in a row, if rows differ. For kGiven it has written the row's values; the numbers it
  // draws are the row's own. Called from any thread.
  std::function<RowKind(int64_t row, Random* random, absl::Span<float> values)> row;
  // The last columns of random rows, if they differ from the others.
  int64_t tail_columns = 0;
  std::function<void(Random* random, absl::Span<float> values)> tail;
};

struct TensorListOptions {
  engine::GgmlType type = engine::GgmlType::kQ4_K;
  RoutingTarget routing;
};

// In the order of layers. Weights are as wide as a fresh training run would start with. With a
// target for the routing, these differ:
//  - The last channel of the residual stream is a constant, and those before it (`slow`) are
//    written by a SlowHead of the first layer alone; nothing else writes to them.
//  - The router's rows read the constant for what is always liked, `slow` for what persists, all
//    other channels for the rest. They follow the stream, which the experts widen in each layer by
//    the same factor, so that the mix is the same in all layers, and a layer's router sees most,
//    but not all, of what the next one's will.
// INVALID_ARGUMENT: SolveRouting's; a target for a shape that has no experts or no room for it.
absl::StatusOr<std::vector<Tensor>> ListTensors(const Shape& shape,
                                                const TensorListOptions& options);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_TENSOR_LIST_H_
