// ExpertScheduler: computes one MoE layer from its routing, in the order in which the layer's
// source has experts ready.
//
//   moe::ExpertScheduler scheduler(&backend, &source);
//   RETURN_IF_ERROR(scheduler.Run({.moe_layer = 3, .top_k = 8, .ids = ids, .weights = weights},
//                                 x, residual, &arena));
//
// Bits do not depend on that order: each (token, expert) pair has an output row of its own, and the
// rows of a token are summed in ascending order of expert id when all are there.
#ifndef TIDEPOOL_MOE_EXPERT_SCHEDULER_H_
#define TIDEPOOL_MOE_EXPERT_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
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
  // Called once the source has been asked, and before it is waited for; may be null.
  const std::function<void()>* asked = nullptr;
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

// Engine thread only.
class ExpertScheduler {
 public:
  // Both outlive the scheduler.
  ExpertScheduler(kernels::KernelBackend* backend, ExpertSource* source)
      : backend_(backend), source_(source) {}

  // out[t] += sum of weights[t][s] * expert ids[t][s] of x[t], for each of the x.values.rows
  // tokens. An error is the source's; `out` is then as it was.
  absl::Status Run(const Routing& routing, const kernels::Activation& x, kernels::MatrixView out,
                   kernels::Arena* arena);

  // Arena bytes that Run takes at most; it gives them back before it returns.
  static size_t WorkspaceBytes(const ExpertShape& shape);

  // Totals since the last call.
  ExpertLookups TakeLookups();

 private:
  // The (token, slot) pairs of a layer, sorted by expert; pair i's output is row i. Lives in the
  // arena.
  struct Plan {
    absl::Span<const int32_t> experts;     // distinct, ascending
    absl::Span<const int32_t> ends;        // pairs of experts[i] end there, those of [i - 1] before
    absl::Span<const int32_t> tokens;      // of each pair
    absl::Span<const int32_t> rows;        // 0, 1, 2 ... : of each pair
    absl::Span<const int32_t> slot_rows;   // [tokens, top_k]: a token's pairs by ascending expert
    absl::Span<const float> slot_weights;  // [tokens, top_k]: in the same order
  };

  static Plan MakePlan(const Routing& routing, int64_t tokens, kernels::Arena* arena);
  absl::Status ComputeWaves(const Plan& plan, const kernels::Activation& x,
                            kernels::MatrixView expert_out, kernels::Arena* arena);

  kernels::KernelBackend* const backend_;
  ExpertSource* const source_;
  ExpertLookups lookups_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_SCHEDULER_H_
