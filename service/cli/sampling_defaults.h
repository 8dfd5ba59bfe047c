// Reads the sampling defaults of a model file.
#ifndef TIDEPOOL_SERVICE_CLI_SAMPLING_DEFAULTS_H_
#define TIDEPOOL_SERVICE_CLI_SAMPLING_DEFAULTS_H_

#include "absl/status/statusor.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/sampling/request.h"

namespace tidepool::service {

// Reads general.sampling.{temp,top_k,top_p,min_p,penalty_repeat,typical_p,xtc_probability,
// xtc_threshold}. llama.cpp has all of these keys except typical_p, which is for HF checkpoints.
// Missing keys keep the defaults of SamplingParams. INVALID_ARGUMENT names the file and the key if
// a value is out of range.
absl::StatusOr<engine::SamplingParams> ReadDefaultSampling(const engine::Checkpoint& file,
                                                           int vocab_size);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_SAMPLING_DEFAULTS_H_
