// WriteSynthetic: a model of a published shape with random weights, as a GGUF file.
#ifndef TIDEPOOL_TOOLS_SYNTHETIC_CHECKPOINT_H_
#define TIDEPOOL_TOOLS_SYNTHETIC_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/checkpoint/ggml_type.h"
#include "engine/checkpoint/gguf_file_writer.h"
#include "tools/synthetic/routing.h"
#include "tools/synthetic/shape.h"

namespace tidepool::tools {

struct SyntheticOptions {
  // Of the matrices; norms and routers are F32. The output head, or the embedding that is one, is
  // Q6_K where this has fewer bits, as `tidepool quantize` would have it.
  engine::GgmlType type = engine::GgmlType::kQ4_K;
  RoutingTarget routing;
  uint64_t seed = 1;
  int threads = 1;
  base::ExistingFile existing = base::ExistingFile::kRefuse;
  // Called with the rising fraction of what is written. May be empty.
  std::function<void(double fraction)> progress;
};

// Weights are bell-shaped, as wide as a fresh training run would start with, so that activations
// stay in range through all layers and logits spread by about 2. Equal options give equal bytes,
// whatever the threads. Takes some MiB of memory, and the time of writing the file. Returns its
// size in bytes. INVALID_ARGUMENT: CheckShape's and ListTensors' errors, a type that cannot be
// written, or whose blocks do not divide the shape's rows; GgufFileWriter::Create's errors.
absl::StatusOr<uint64_t> WriteSynthetic(const Shape& shape, const std::string& path,
                                        const SyntheticOptions& options);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_CHECKPOINT_H_
