// Memory that the tensors of a loaded model file use.
#ifndef TIDEPOOL_SERVICE_CLI_MODEL_BYTES_H_
#define TIDEPOOL_SERVICE_CLI_MODEL_BYTES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf.h"

namespace tidepool::service {

// Returns true for matrices of routed experts. Such a tensor has all experts of a layer
// ("blk.0.ffn_up_exps.weight"), or one expert ("blk.0.ffn_up.3.weight").
bool IsExpertTensor(absl::string_view name);

// Bytes of the tensor in memory after loading: in the type of the file with the layout of the
// kernels, or as float32 if the kernels do not support the type.
int64_t ResidentBytes(const engine::GgufTensor& tensor);
// Like the function above, for a tensor that was quantised to `type` while it was loaded.
int64_t ResidentBytes(const engine::GgufTensor& tensor, engine::GgmlType type);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_MODEL_BYTES_H_
