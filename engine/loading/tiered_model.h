// From a checkpoint with experts to the ExpertSource that serves them: the pack file, made where it
// is missing, and the tiers over it.
#ifndef TIDEPOOL_ENGINE_LOADING_TIERED_MODEL_H_
#define TIDEPOOL_ENGINE_LOADING_TIERED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/pack_file.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/loading/expert_options.h"
#include "engine/model/model_config.h"
#include "moe/replay/trace_writer.h"
#include "moe/tiered_experts.h"

namespace tidepool::engine {

// What of a load takes long; told as it goes on.
enum class LoadStage : uint8_t { kHashing, kPacking, kLoading, kReadingExperts };
using StageProgress = std::function<void(LoadStage stage, double fraction)>;

// Where the pack of a checkpoint is kept; one for each type that weights are quantised to.
std::string PackPath(const Checkpoint& file, const std::string& cache_dir,
                     std::optional<GgmlType> quantize_to = std::nullopt);

enum class ExistingPack : uint8_t { kUse, kReplace };

struct PackRequest {
  WeightStore* store = nullptr;  // of the checkpoint
  std::string digest;            // of every byte of it (content_digest.h)
  std::string path;
  ExistingPack existing = ExistingPack::kUse;
  StageProgress progress;
  // Takes a line for people if a pack is damaged and made again. May be empty.
  std::function<void(absl::string_view line)> note;
};

// The pack of a checkpoint: the one that is there, or a new one if that is missing, of another
// version or checkpoint, cut short, or damaged in its header. Errors: WritePack's,
// PERMISSION_DENIED, and those of the checkpoint's tensors. Requires a config with experts.
absl::StatusOr<moe::ExpertRecords> OpenPack(const ModelConfig& config, const PackRequest& request);

// The trace that options.trace_path asks for; null where it asks for none or the model has no
// experts. `name` is the model's. Errors name the path.
absl::StatusOr<std::unique_ptr<moe::TraceWriter>> OpenTrace(const ModelConfig& config,
                                                            const std::string& name,
                                                            WeightStore* store,
                                                            const std::string& path);

struct TierRequest {
  std::string digest;  // of every byte of the checkpoint (content_digest.h)
  StageProgress progress;
};

// Null: all experts are to be packed into memory. Residents are not loaded yet. Errors: OpenPack's,
// PlanExpertSlots' and TieredExperts::Create's.
absl::StatusOr<std::unique_ptr<moe::TieredExperts>> MakeTieredExperts(const ModelConfig& config,
                                                                      WeightStore* store,
                                                                      const ExpertOptions& options,
                                                                      const TierRequest& request);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_TIERED_MODEL_H_
