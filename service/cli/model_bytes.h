// Memory that the tensors of a loaded model file use.
#ifndef TIDEPOOL_SERVICE_CLI_MODEL_BYTES_H_
#define TIDEPOOL_SERVICE_CLI_MODEL_BYTES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf.h"

namespace tidepool::service {

// Returns true for routed experts' matrices: all of a layer in one tensor
// ("blk.0.ffn_up_exps.weight"), or of one expert ("blk.0.ffn_up.3.weight").
bool IsExpertTensor(absl::string_view name);

// Bytes in memory once loaded: in the file's type with the kernels' layout, or as float32 if the
// kernels do not read the type.
int64_t ResidentBytes(const engine::GgufTensor& tensor);
// Same for a tensor that was quantised to `type` while it was loaded.
int64_t ResidentBytes(const engine::GgufTensor& tensor, engine::GgmlType type);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_MODEL_BYTES_H_
