// The layouts and sizes of a checkpoint's routed experts. No weights are loaded.
#ifndef TIDEPOOL_ENGINE_LOADING_EXPERT_LAYOUTS_H_
#define TIDEPOOL_ENGINE_LOADING_EXPERT_LAYOUTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/pack_file.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/loading/expert_memory.h"
#include "engine/model/model_config.h"

namespace tidepool::engine {

// Returns the numbers of the layers that have experts.
std::vector<int> MoeLayers(const ModelConfig& config);

// Returns the contents of the checkpoint's pack: the layouts of all experts. `digest` is that of
// every byte of the checkpoint. Marks the experts' tensors as used. Returns the errors of
// ExpertShapes.
absl::StatusOr<PackContents> PackContentsOf(const ModelConfig& config, const std::string& digest,
                                            WeightStore* store);

// Returns the sizes of these experts. dense_bytes is not set.
ExpertSizes ExpertSizesOf(const ModelConfig& config, const PackContents& contents, int staging);

// Returns the packed bytes of all tensors that are not routed experts. Requires: so far, only
// experts were requested from the store.
int64_t DenseBytes(const WeightStore& store);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_EXPERT_LAYOUTS_H_
