#include "service/cli/check_tensors.h"

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/model/transformer_weights.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {

absl::Status CheckTensors(const engine::ModelConfig& config, engine::Checkpoint* file) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<engine::WeightStore> store,
      engine::WeightStore::Create(std::move(*file),
                                  {.threads = 1, .contents = engine::WeightContents::kShapesOnly}));
  const absl::Status checked =
      engine::LoadTransformerWeights(config, store.get(), {}, engine::ExpertLoading::kPacked)
          .status();
  *file = std::move(*store).TakeFile();
  return checked;
}

}  // namespace tidepool::service
