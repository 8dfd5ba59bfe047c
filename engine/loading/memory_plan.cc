#include "engine/loading/memory_plan.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "engine/kv/kv_cache.h"
#include "engine/kv/kv_disk.h"
#include "engine/kv/kv_disk_format.h"
#include "engine/loading/expert_layouts.h"
#include "engine/model/transformer.h"
#include "kernels/base/status_macros.h"
#include "kernels/memory.h"

namespace tidepool::engine {
namespace {

// Returns the number of rows of logits per step for log-probabilities of prompts. They are in
// addition to one row for each sequence. It is the number that fits into 32 MiB, but at most 128.
int64_t PromptLogitRows(int64_t vocab_size) {
  constexpr int64_t kBytes = int64_t{32} << 20;
  return std::clamp<int64_t>(kBytes / (vocab_size * int64_t{sizeof(float)}), 1, 128);
}

std::optional<int64_t> AvailableBytes(const kernels::Memory& memory) {
  const std::optional<size_t> bytes = memory.available();
  if (!bytes.has_value()) return std::nullopt;
  return static_cast<int64_t>(*bytes);
}

// Returns the bytes of KV according to `limits`, including the KV that is given as a number of
// tokens. The default depends on the memory that `dense_bytes` leave.
int64_t KvBytes(const MemoryLimits& limits, const ModelConfig& config, kernels::DType kv_dtype,
                int64_t dense_bytes) {
  int64_t bytes = limits.kv_bytes;
  if (bytes < 0 && limits.available_bytes.has_value()) {
    bytes = DefaultKvBytes(std::max<int64_t>(0, *limits.available_bytes - dense_bytes));
  } else if (bytes < 0) {
    bytes = DefaultKvBytes(std::nullopt);
  }
  bytes += limits.kv_tokens * KvBytesPerToken(config, kv_dtype);
  // kv_tokens are the tokens of one sequence in a ContiguousKv, which has two recurrent states.
  if (limits.kv_tokens > 0) bytes += 2 * KvCostOf(KvSpecsOf(config, kv_dtype)).state_bytes;
  return bytes;
}

// Returns the bytes of the host's memory that the KV on disk needs.
absl::StatusOr<int64_t> KvDiskBytes(const MemoryLimits& limits, const ModelConfig& config,
                                    kernels::DType kv_dtype) {
  if (limits.kv_disk_bytes == 0) return 0;
  const int64_t block_bytes = KvBlockBytes(KvSpecsOf(config, kv_dtype));
  ASSIGN_OR_RETURN(const KvDiskLayout disk, PlanKvDisk(limits.kv_disk_bytes, block_bytes));
  return KvDiskMemoryBytes(disk);
}

// Measures the workspace of a device, with a model that has no weights.
absl::StatusOr<int64_t> WorkspaceBytes(const ModelConfig& config, WeightStore* shapes,
                                       const PlanRequest& request, int64_t prefill_rows) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<TransformerModel> model,
      TransformerModel::Create(config, shapes, request.backend, {.kv_dtype = request.kv_dtype}));
  return static_cast<int64_t>(
      model->WorkspaceBytes(StepLimits(config.vocab_size, request.max_sequences, prefill_rows)));
}

// Plans the slots of the model's own memory. Sets `workspace_bytes` of the limits, too.
absl::Status PlanSlots(const ModelConfig& config, WeightStore* shapes, const PlanRequest& request,
                       MemoryLimits* limits, MemoryPlan* plan) {
  if (plan->on_device) {
    ASSIGN_OR_RETURN(limits->workspace_bytes,
                     WorkspaceBytes(config, shapes, request, kPrefillRows));
  }
  if (plan->sizes.experts == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(plan->slots, PlanExpertSlots(request.experts->memory, *limits, plan->sizes));
  if (!plan->on_device || plan->slots == 0) return absl::OkStatus();
  // Passes that must read experts have more rows.
  ASSIGN_OR_RETURN(limits->workspace_bytes,
                   WorkspaceBytes(config, shapes, request, kOffloadPrefillRows));
  ASSIGN_OR_RETURN(plan->slots, PlanExpertSlots(request.experts->memory, *limits, plan->sizes));
  return absl::OkStatus();
}

}  // namespace

BatchLimits StepLimits(int64_t vocab_size, int64_t max_sequences, int64_t prefill_rows) {
  return {.rows = std::max(prefill_rows, max_sequences),
          .logit_rows = max_sequences + PromptLogitRows(vocab_size)};
}

absl::StatusOr<MemoryPlan> PlanMemory(const ModelConfig& config, WeightStore* shapes,
                                      const PlanRequest& request) {
  const ExpertOptions& experts = *request.experts;
  kernels::Memory* const memory = request.backend->memory();
  MemoryPlan plan = {.on_device = !memory->on_host()};
  if (config.moe_layers() > 0) {
    ASSIGN_OR_RETURN(const PackContents contents, PackContentsOf(config, /*digest=*/"", shapes));
    plan.sizes = ExpertSizesOf(config, contents, experts.staging);
  }
  plan.sizes.dense_bytes = DenseBytes(*shapes);
  ASSIGN_OR_RETURN(const int64_t disk, KvDiskBytes(experts.limits, config, request.kv_dtype));

  MemoryLimits limits = experts.limits;
  int64_t dense_bytes = 0;  // subtracted before the default KV size is computed
  if (plan.on_device) {
    limits.level = MemoryLevel::kDevice;
    limits.available_bytes = AvailableBytes(*memory);
    limits.kv_disk_bytes = 0;
    dense_bytes = plan.sizes.dense_bytes;
  }
  plan.kv_bytes = KvBytes(limits, config, request.kv_dtype, dense_bytes);
  limits.kv_bytes = plan.kv_bytes + (plan.on_device ? 0 : disk);
  RETURN_IF_ERROR(PlanSlots(config, shapes, request, &limits, &plan));
  plan.available_bytes = limits.available_bytes;
  plan.workspace_bytes = limits.workspace_bytes;
  if (limits.available_bytes.has_value()) plan.reserve_bytes = ReserveBytes(limits);
  if (!plan.on_device || plan.slots == 0) return plan;

  MemoryLimits below = experts.limits;
  below.level = MemoryLevel::kBelowDevice;
  below.kv_bytes = disk;
  ExpertSizes sizes = plan.sizes;
  sizes.dense_bytes = 0;
  plan.host_available_bytes = below.available_bytes;
  ASSIGN_OR_RETURN(plan.host_slots, PlanExpertSlots(experts.host_memory, below, sizes));
  return plan;
}

std::vector<std::string> RaisedShareNotes(const ExpertOptions& experts, const MemoryPlan& plan) {
  std::vector<std::string> notes;
  const auto add = [&](std::string note) {
    if (!note.empty()) notes.push_back(std::move(note));
  };
  if (plan.slots > 0) add(RaisedShareNote(experts.memory, plan.sizes));
  if (plan.host_slots > 0) {
    add(RaisedShareNote(experts.host_memory, plan.sizes, MemoryLevel::kBelowDevice));
  }
  return notes;
}

}  // namespace tidepool::engine
