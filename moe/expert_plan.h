// ExpertPlan: the (token, slot) pairs of one MoE layer's routing, sorted by expert.
#ifndef TIDEPOOL_MOE_EXPERT_PLAN_H_
#define TIDEPOOL_MOE_EXPERT_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/tensor.h"

namespace tidepool::moe {

// Borrowed from the arena that MakeExpertPlan was given. Pairs of one expert ascend by token.
struct ExpertPlan {
  absl::Span<const int32_t> experts;     // distinct, ascending
  absl::Span<const int32_t> ends;        // pairs of experts[i] end there, those of [i - 1] before
  absl::Span<const int32_t> tokens;      // of each pair
  absl::Span<const float> weights;       // of each pair
  absl::Span<const int32_t> rows;        // 0, 1, 2 ... : of each pair
  absl::Span<const int32_t> slot_rows;   // [tokens, top_k]: a token's pairs by ascending expert
  absl::Span<const float> slot_weights;  // [tokens, top_k]: in the same order

  int32_t Begin(size_t expert) const { return expert == 0 ? 0 : ends[expert - 1]; }
  int32_t RowsOf(size_t expert) const { return ends[expert] - Begin(expert); }
  // Where `expert` stands in experts; their number if it is none of them.
  size_t Find(int32_t expert) const;
};

// ids and weights: [tokens, top_k], the ids of a token distinct. Only they decide the plan.
ExpertPlan MakeExpertPlan(absl::Span<const int32_t> ids, const float* weights, int top_k,
                          kernels::Arena* arena);

// Arena bytes that a plan takes.
size_t ExpertPlanBytes(int64_t tokens, int top_k);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_PLAN_H_
