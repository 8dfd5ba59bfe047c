// Creates the ExpertSource for a checkpoint with experts. Writes the pack file if it is missing,
// and creates the tiers (a GPU's memory, the host's memory and the pack file) of the experts.
#ifndef TIDEPOOL_ENGINE_LOADING_TIERED_MODEL_H_
#define TIDEPOOL_ENGINE_LOADING_TIERED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/checkpoint/pack_file.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/loading/expert_options.h"
#include "engine/loading/memory_plan.h"
#include "engine/model/model_config.h"
#include "engine/model/transformer_weights.h"
#include "kernels/backend.h"
#include "moe/expert_source.h"
#include "moe/trace/trace_writer.h"

namespace tidepool::engine {

// The slow stages of a load, for progress reports.
enum class LoadStage : uint8_t { kHashing, kPacking, kLoading, kReadingExperts };
using StageProgress = std::function<void(LoadStage stage, double fraction)>;

// Path of a checkpoint's pack file. Each type that weights can be quantised to has its own pack
// file.
std::string PackPath(const Checkpoint& file, const std::string& cache_dir,
                     std::optional<GgmlType> quantize_to = std::nullopt);

enum class ExistingPack : uint8_t { kUse, kReplace };

struct PackRequest {
  WeightStore* store = nullptr;  // the store of the checkpoint
  std::string digest;            // digest of every byte of the checkpoint (content_digest.h)
  std::string path;
  ExistingPack existing = ExistingPack::kUse;
  StageProgress progress;
  // Receives a message for people if a damaged pack is rebuilt. May be empty.
  std::function<void(absl::string_view line)> note;
};

// Opens the checkpoint's pack. Writes a new pack if there is none. Also writes one if the existing
// pack is truncated, has a damaged header, or belongs to another format version or checkpoint.
// Returns the errors of WritePack, PERMISSION_DENIED, and the errors of the checkpoint's tensors.
// Requires: the config has experts.
absl::StatusOr<moe::ExpertRecords> OpenPack(const ModelConfig& config, const PackRequest& request);

// Creates the routing trace at `path`. Returns null if `path` is empty or the model has no experts.
// `name` is the model's name. Errors name the path.
absl::StatusOr<std::unique_ptr<moe::TraceWriter>> OpenTrace(const ModelConfig& config,
                                                            const std::string& name,
                                                            WeightStore* store,
                                                            const std::string& path);

struct TierRequest {
  const MemoryPlan* plan = nullptr;
  std::string digest;  // digest of every byte of the checkpoint (content_digest.h)
  StageProgress progress;
  kernels::KernelBackend* backend = nullptr;  // of the model; must outlive the source
};

// The tiers of a model's experts: memory and the pack file, and a GPU's memory above them if the
// model runs there.
struct ExpertTiers {
  std::unique_ptr<moe::ExpertSource> source;  // null: all experts are to be packed into memory
  // Reads the experts that the policy wants in memory at the start. Must be called once, before the
  // first request. Returns the error of a copy to the GPU.
  std::function<absl::Status(const LoadProgress& progress)> load_residents;
};

// Creates the tiers of the plan. Does not read experts into memory yet. Returns the errors of
// OpenPack, TieredExperts::Create and DeviceExperts::Create.
absl::StatusOr<ExpertTiers> MakeExpertTiers(const ModelConfig& config, WeightStore* store,
                                            const ExpertOptions& options,
                                            const TierRequest& request);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_TIERED_MODEL_H_
