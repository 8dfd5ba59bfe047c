// Loads the weights of mixers that are not attention. Implementation detail of
// transformer_weights.cc.
#ifndef TIDEPOOL_ENGINE_MODEL_MIXER_WEIGHTS_H_
#define TIDEPOOL_ENGINE_MODEL_MIXER_WEIGHTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer_weights.h"

namespace tidepool::engine {

// Return the errors of LoadTransformerWeights. `prefix` is "blk.N.".
//
// If V heads are grouped, ssm_ba.weight may replace ssm_beta.weight and ssm_alpha.weight, and
// ssm_in.weight may replace attn_qkv.weight and attn_gate.weight. In both replacements, the rows of
// each K head are together.
absl::StatusOr<DeltaNetWeights> LoadDeltaNet(const ModelConfig& config, const LayerConfig& layer,
                                             const std::string& prefix, WeightStore* store);
absl::StatusOr<ShortConvWeights> LoadShortConv(const ModelConfig& config, const LayerConfig& layer,
                                               const std::string& prefix, WeightStore* store);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_MIXER_WEIGHTS_H_
