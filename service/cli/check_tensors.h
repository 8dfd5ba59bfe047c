// Checks that a checkpoint has the tensors that its model needs.
#ifndef TIDEPOOL_SERVICE_CLI_CHECK_TENSORS_H_
#define TIDEPOOL_SERVICE_CLI_CHECK_TENSORS_H_

#include "absl/status/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/model_config.h"

namespace tidepool::service {

// Returns the errors of LoadTransformerWeights for names, shapes and types of tensors. Does not
// read the data of matrices. `file` is used for a while, and then as before.
absl::Status CheckTensors(const engine::ModelConfig& config, engine::Checkpoint* file);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CHECK_TENSORS_H_
