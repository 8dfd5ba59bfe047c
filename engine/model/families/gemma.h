// Gemma 2 and 3. They need a function, because their factor on q k^T has no key.
#ifndef TIDEPOOL_ENGINE_MODEL_FAMILIES_GEMMA_H_
#define TIDEPOOL_ENGINE_MODEL_FAMILIES_GEMMA_H_

#include "absl/status/status.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/model/config_keys.h"
#include "engine/model/model_config.h"

namespace tidepool::engine {

// Without attention.scale, the factor is 1 / sqrt(head_dim). In the models with 27 billion
// parameters, it is 1 / sqrt(hidden_size / heads). These models can be recognised only by their
// number of layers.
absl::Status AdjustGemma(const Checkpoint& file, const Keys& keys, ModelConfig* config);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_FAMILIES_GEMMA_H_
