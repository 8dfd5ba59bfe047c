// ExpertScheduler: computes one MoE layer from its routing, in the order in which the layer's
// source has experts ready.
//
//   moe::ExpertScheduler scheduler(&backend, &source);
//   RETURN_IF_ERROR(scheduler.Run({.moe_layer = 3, .top_k = 8, .ids = ids, .weights = weights},
//                                 x, residual, &arena));
//
// Bits do not depend on that order: the outputs of a token's experts are summed in ascending order
// of expert id. Where they all fit into the workspace, experts run as they become ready and the
// sums are made when all are there; where they do not (long prompts), see BoundedMoeLayer.
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

// What the gate of one layer chose: ids and weights, each [tokens, top_k], in any order within a
// token. Requires: the ids of one token are distinct.
struct Routing {
  int moe_layer = 0;
  int top_k = 0;
  const int32_t* ids = nullptr;
  const float* weights = nullptr;
  // As LayerRouting has them; for the source alone.
  int64_t step = 0;
  absl::Span<const Phase> phases;
  absl::Span<const int64_t> requests;
  // Called once the source has been asked, and before it is waited for.
  std::optional<absl::FunctionRef<void()>> asked = std::nullopt;
};

// Distinct experts that layers needed, by how they were found.
struct ExpertLookups {
  int64_t hits = 0;
  int64_t misses = 0;
};

// Largest sizes of one Run.
struct ExpertShape {
  int64_t tokens = 0;
  int experts = 0;  // of a layer
  int top_k = 0;
  int64_t hidden = 0;
  int64_t width = 0;  // neurons of an expert
};

// What a Run may take of its arena beside what grows with its tokens.
struct SchedulerMemory {
  int64_t whole_bytes = int64_t{32} << 20;  // outputs of a layer, if that is all
  int64_t kept_bytes = int64_t{16} << 20;   // else those that are not yet summed, beside the sums
  int64_t call_bytes = int64_t{8} << 20;    // scratch of the products of one call
};

// Engine thread only, but for what is said otherwise.
class ExpertScheduler {
 public:
  // Both outlive the scheduler.
  ExpertScheduler(kernels::KernelBackend* backend, ExpertSource* source,
                  const SchedulerMemory& memory = {})
      : backend_(backend), source_(source), memory_(memory) {}

  // out[t] += sum of weights[t][s] * expert ids[t][s] of x[t], for each of the x.values.rows
  // tokens. An error is the source's; `out` is then as it was.
  absl::Status Run(const Routing& routing, const kernels::Activation& x, kernels::MatrixView out,
                   kernels::Arena* arena);

  // Arena bytes that Run takes at most; it gives them back before it returns. Grows with tokens by
  // a row of sums and, for each of their experts, some words.
  size_t WorkspaceBytes(const ExpertShape& shape) const;

  // Totals since the last call.
  ExpertLookups TakeLookups();

  // Moves while a Run gets on: whenever experts come. Any thread.
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
