// ExpertScheduler: computes one MoE layer from its routing, in the order in which the source has
// experts ready.
//
//   moe::ExpertScheduler scheduler(&backend, &source);
//   RETURN_IF_ERROR(scheduler.Run({.moe_layer = 3, .top_k = 8, .ids = ids, .weights = weights},
//                                 x, residual, &arena));
//
// The result does not depend on that order, bit by bit: the outputs of a token's experts are always
// summed in ascending order of expert id. If all outputs fit into the workspace, they are summed
// after the last expert has run. Otherwise (long prompts), BoundedMoeLayer computes the layer.
#ifndef TIDEPOOL_MOE_EXPERT_SCHEDULER_H_
#define TIDEPOOL_MOE_EXPERT_SCHEDULER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "moe/expert_plan.h"
#include "moe/expert_source.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// The gate's choice for one layer: ids and weights, each [tokens, top_k], in any order within a
// token. Requires: the ids of one token are distinct.
struct Routing {
  int moe_layer = 0;
  int top_k = 0;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  // Same as in LayerRouting. Only the source uses them.
  int64_t step = 0;
  absl::Span<const Phase> phases;
  absl::Span<const int64_t> requests;
  // Called once after the request to the source, before Run waits for it.
  std::optional<absl::FunctionRef<void()>> asked = std::nullopt;
};

// Counts the distinct experts that layers requested, by how they were found.
struct ExpertLookups {
  int64_t hits = 0;
  int64_t misses = 0;
};

// Maximum sizes of one Run.
struct ExpertShape {
  int64_t tokens = 0;
  int top_k = 0;
  int64_t hidden = 0;
  const kernels::FfnWeights* expert = nullptr;  // any expert of the layer; only its shape is used
  std::optional<absl::FunctionRef<void()>> asked = std::nullopt;  // as in Routing
};

// Limits for the arena memory of a Run, apart from the part that grows with its tokens.
struct SchedulerMemory {
  int64_t whole_bytes = int64_t{32} << 20;  // outputs of a whole layer, if they fit
  // otherwise, outputs that are not summed yet, besides the sums
  int64_t kept_bytes = int64_t{16} << 20;
  int64_t call_bytes = int64_t{9} << 19;  // scratch of one GroupedFfn call
};

// Engine thread only, unless noted.
class ExpertScheduler {
 public:
  // Both must outlive the scheduler.
  ExpertScheduler(kernels::KernelBackend* backend, ExpertSource* source,
                  const SchedulerMemory& memory = {})
      : backend_(backend), source_(source), memory_(memory) {}

  // out[t] += the sum over s of weights[t][s] * expert(ids[t][s])(x[t]), for each of the
  // x.values.rows tokens. On error, which comes from the source, `out` is unchanged.
  absl::Status Run(const Routing& routing, const kernels::Activation& x, kernels::MatrixView out,
                   kernels::Arena* arena);

  // A dry run: allocates from a counting arena the most that a Run with this number of tokens, or
  // with fewer, uses with any routing. Frees it before it returns, like Run. Per token, the memory
  // grows by a row of sums, and by a few words per expert of the token.
  void Measure(const ExpertShape& shape, kernels::KernelBackend* counting,
               kernels::Arena* arena) const;

  // Returns the counts since the last call.
  ExpertLookups TakeLookups();

  // Incremented when experts arrive during a Run, so that a stuck engine can be detected. Any
  // thread.
  uint64_t heartbeat() const { return heartbeat_; }

 private:
  absl::Status RunWhole(const Routing& routing, const ExpertPlan& plan,
                        const kernels::Activation& x, kernels::MatrixView out,
                        kernels::Arena* arena);
  absl::Status RunOrdered(const ExpertPlan& plan, const kernels::Activation& x,
                          kernels::MatrixView out, kernels::Arena* arena);
  absl::Status ComputeWaves(const ExpertPlan& plan, const kernels::Activation& x,
                            kernels::MatrixView expert_out, kernels::Arena* arena);
  kernels::KernelBackend* const backend_;
  ExpertSource* const source_;
  const SchedulerMemory memory_;
  ExpertLookups lookups_;
  std::atomic<uint64_t> heartbeat_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_SCHEDULER_H_
