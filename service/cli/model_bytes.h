// What the tensors of a model file take in memory once loaded.
#ifndef TIDEPOOL_SERVICE_CLI_MODEL_BYTES_H_
#define TIDEPOOL_SERVICE_CLI_MODEL_BYTES_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "engine/checkpoint/gguf.h"

namespace tidepool::service {

// Whether the tensor holds one matrix of routed experts: of all of a layer, stacked
// ("blk.0.ffn_up_exps.weight"), or of one ("blk.0.ffn_up.3.weight").
bool IsExpertTensor(absl::string_view name);

// Bytes in memory once loaded: re-laid as it is, or as float32 where kernels do not read the type.
int64_t ResidentBytes(const engine::GgufTensor& tensor);
// The same of a tensor that was quantised to `type` while it was loaded.
int64_t ResidentBytes(const engine::GgufTensor& tensor, engine::GgmlType type);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_MODEL_BYTES_H_
