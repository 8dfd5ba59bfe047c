// MemoryPlan: says where each part of a model will be. The places are the memory that the model
// runs in (a GPU's, or the host's), the host's memory below a GPU, and the disk. The plan is made
// before anything is loaded.
#ifndef TIDEPOOL_ENGINE_LOADING_MEMORY_PLAN_H_
#define TIDEPOOL_ENGINE_LOADING_MEMORY_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/checkpoint/weight_store.h"
#include "engine/loading/expert_memory.h"
#include "engine/loading/expert_options.h"
#include "engine/model/model.h"
#include "engine/model/model_config.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// The numbers of prompt rows per pass that give good speed. kOffloadPrefillRows is for passes that
// must read experts: most prompts then read each missing expert only once. Twice the number would
// need 60 MB more of workspace for Qwen3-30B, and would save a second read only for longer prompts.
inline constexpr int64_t kPrefillRows = 512;
inline constexpr int64_t kOffloadPrefillRows = 2048;

// Returns the limits of a step: `prefill_rows` rows of prompts, or a row of every sequence, each
// with its logits, and logits for log-probabilities of prompts.
BatchLimits StepLimits(int64_t vocab_size, int64_t max_sequences, int64_t prefill_rows);

struct MemoryPlan {
  bool on_device = false;  // the model runs in the memory of a GPU

  // The memory that the model runs in.
  std::optional<int64_t> available_bytes;  // before anything is loaded; nullopt: unknown
  int64_t reserve_bytes = 0;               // stays free if the plan has room for it
  int64_t kv_bytes = 0;
  int64_t workspace_bytes = 0;  // 0 unless on_device: the host's workspace is not counted
  ExpertSizes sizes;            // experts is 0 if the model has no routed experts
  int64_t slots = 0;  // for experts; 0: all experts are packed into memory like other weights

  // The host's memory below a GPU. It is pinned, so that the GPU can read it.
  std::optional<int64_t> host_available_bytes;
  int64_t host_slots = 0;  // for experts; 0: none

  bool offloads() const { return slots > 0; }
  // Bytes of these slots and the staging records.
  int64_t ExpertBytes(int64_t slot_count) const {
    return (slot_count + sizes.staging) * sizes.record_bytes;
  }
};

struct PlanRequest {
  const ExpertOptions* experts = nullptr;
  kernels::DType kv_dtype = kernels::DType::kF16;
  int64_t max_sequences = 1;                  // of a step
  kernels::KernelBackend* backend = nullptr;  // of the model
};

// Plans the memory of the model. `shapes` is a store of the checkpoint without data
// (WeightContents::kShapesOnly) from which nothing was requested. Returns the errors of
// PlanExpertSlots, of PlanKvDisk, and of the checkpoint's tensors.
absl::StatusOr<MemoryPlan> PlanMemory(const ModelConfig& config, WeightStore* shapes,
                                      const PlanRequest& request);

// For each level whose share PlanExpertSlots has raised: a line for the user that says so.
std::vector<std::string> RaisedShareNotes(const ExpertOptions& experts, const MemoryPlan& plan);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_MEMORY_PLAN_H_
