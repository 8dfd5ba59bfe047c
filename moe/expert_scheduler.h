// ExpertScheduler: computes one MoE layer from its routing. Experts are computed in the order in
// which the source has them ready.
//
//   moe::ExpertScheduler scheduler(&backend, &source);
//   RETURN_IF_ERROR(scheduler.Run({.moe_layer = 3, .top_k = 8, .ids = ids, .weights = weights},
//                                 x, residual, &arena));
//
// The order does not change any bit of the result, because the outputs of a token's experts are
// always summed in ascending order of expert id. If all outputs fit into the workspace, they are
// summed after the last expert has run. If they do not fit, as in long prompts, BoundedMoeLayer
// computes the layer.
#ifndef TIDEPOOL_MOE_EXPERT_SCHEDULER_H_
#define TIDEPOOL_MOE_EXPERT_SCHEDULER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/clock.h"
#include "moe/cpu_lane.h"
#include "moe/expert_plan.h"
#include "moe/expert_source.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// What the gate chose for one layer: ids and weights, each [tokens, top_k], in the host's memory.
// The choices of a token may be in any order. Requires: the ids of one token are distinct.
struct Routing {
  int moe_layer = 0;
  int top_k = 0;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  // The next three have the same meaning as in LayerRouting. Only the source uses them.
  int64_t step = 0;
  absl::Span<const Phase> phases;
  absl::Span<const int64_t> requests;
  // x.values of Run in the host's memory, or without data. If it has data, and the scheduler has a
  // host backend, the CPU may compute experts.
  kernels::ConstMatrixView host_x = {};
  // Called once, after the source got the request and before Run waits for experts.
  std::optional<absl::FunctionRef<void()>> asked = std::nullopt;
};

// The CPU may compute experts of a layer beside a device if the layer has at most this number of
// rows. With more rows, it is faster to copy the experts to the device.
inline constexpr int64_t kHostLaneRows = 64;

// Counts the distinct experts that layers requested, by where they were found.
struct ExpertLookups {
  int64_t hits = 0;
  int64_t misses = 0;
};

// The maximum sizes of one Run.
struct ExpertShape {
  int64_t tokens = 0;
  int top_k = 0;
  int64_t hidden = 0;
  const kernels::FfnWeights* expert = nullptr;  // any expert of the layer; only its shape is used
  std::optional<absl::FunctionRef<void()>> asked = std::nullopt;  // see Routing::asked
};

// Limits for the arena memory of a Run. They do not include the part that grows with the number of
// tokens.
struct SchedulerMemory {
  // outputs of all (token, expert) pairs of a layer, if they fit
  int64_t whole_bytes = int64_t{32} << 20;
  // if they do not fit: outputs that are not summed yet; the memory of the sums is not included
  int64_t kept_bytes = int64_t{16} << 20;
  int64_t call_bytes = int64_t{9} << 19;  // scratch memory of one GroupedFfn call
};

// Engine thread only, except where noted.
class ExpertScheduler {
 public:
  // The arguments must outlive the scheduler. `host_backend` computes experts with Place::kHost. It
  // may be null, and is only needed if `backend` is a device. It must have the same precision as
  // `backend`.
  ExpertScheduler(kernels::KernelBackend* backend, ExpertSource* source,
                  kernels::KernelBackend* host_backend = nullptr,
                  const SchedulerMemory& memory = {},
                  const base::Clock* clock = &base::Clock::Real());
  ~ExpertScheduler();

  // Returns whether Run can use Routing::host_x for a layer with this number of rows.
  bool UsesHostX(int64_t rows) const { return cpu_lane_ != nullptr && rows <= kHostLaneRows; }

  // For each of the x.values.rows tokens t, adds to out[t] the sum over s of weights[t][s] *
  // expert(ids[t][s])(x[t]). Errors come from the source; `out` is then unchanged.
  absl::Status Run(const Routing& routing, const kernels::Activation& x, kernels::MatrixView out,
                   kernels::Arena* arena);

  // A dry run. From a counting arena, allocates the maximum memory that a Run can use for up to
  // this number of tokens, with any routing. Like Run, frees the memory at the end. Per token, the
  // memory grows by a row of sums, and by a few words for each expert of the token.
  void Measure(const ExpertShape& shape, kernels::KernelBackend* counting,
               kernels::Arena* arena) const;

  // Returns what was counted since the last call.
  ExpertLookups TakeLookups();

  // A counter that increases each time experts become ready during a Run. It shows that the engine
  // is not stuck. May be called on any thread.
  uint64_t heartbeat() const { return heartbeat_; }

 private:
  absl::Status RunWhole(const Routing& routing, const ExpertPlan& plan,
                        const kernels::Activation& x, kernels::MatrixView out,
                        kernels::Arena* arena);
  absl::Status RunOrdered(const ExpertPlan& plan, const kernels::Activation& x,
                          kernels::MatrixView out, kernels::Arena* arena);
  absl::Status ComputeWaves(const ExpertPlan& plan, const kernels::Activation& x,
                            kernels::MatrixView expert_out, kernels::Arena* arena);
  kernels::Arena* PlanArena(int64_t tokens, int top_k, kernels::Arena* arena);

  kernels::KernelBackend* const backend_;
  ExpertSource* const source_;
  const SchedulerMemory memory_;
  std::unique_ptr<CpuLane> cpu_lane_;         // null if there is no host backend
  std::optional<kernels::Arena> plan_arena_;  // only used if the workspace is on a device
  ExpertLookups lookups_;
  std::atomic<uint64_t> heartbeat_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_SCHEDULER_H_
