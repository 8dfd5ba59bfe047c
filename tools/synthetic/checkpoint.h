// WriteSynthetic: writes a GGUF file of a model that has a published shape and random weights.
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
  // Type of the matrices. Norms and routers are F32. If the type has fewer bits than Q6_K, the
  // output head (or the tied embedding) is Q6_K, as in `tidepool quantize`.
  engine::GgmlType type = engine::GgmlType::kQ4_K;
  RoutingTarget routing;
  uint64_t seed = 1;
  int threads = 1;
  base::ExistingFile existing = base::ExistingFile::kRefuse;
  // If not empty, called several times with the fraction of the file that is written so far.
  std::function<void(double fraction)> progress;
};

// Writes the model and returns the size of the file in bytes. The weights are bell-shaped and have
// the deviation of a fresh initialisation. So activations stay in range through all layers, and
// logits have a deviation of about 2. The same options give the same bytes, with any number of
// threads. Needs a few MiB of memory. Errors are those of CheckShape, ListTensors and
// GgufFileWriter::Create, and INVALID_ARGUMENT if the type cannot be written or its blocks do not
// divide the shape's rows.
absl::StatusOr<uint64_t> WriteSynthetic(const Shape& shape, const std::string& path,
                                        const SyntheticOptions& options);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_SYNTHETIC_CHECKPOINT_H_
