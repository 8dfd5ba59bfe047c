// ExpertPlan: the (token, expert) pairs of one MoE layer's routing, sorted by expert.
#ifndef TIDEPOOL_MOE_EXPERT_PLAN_H_
#define TIDEPOOL_MOE_EXPERT_PLAN_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/tensor.h"

namespace tidepool::moe {

// The spans point into the arena that was passed to MakeExpertPlan. The pairs of one expert are
// sorted by token.
struct ExpertPlan {
  absl::Span<const int32_t> experts;  // distinct, ascending
  absl::Span<const int32_t> ends;     // the pairs of experts[i] are [ends[i - 1], ends[i])
  absl::Span<const int32_t> tokens;   // token of each pair
  absl::Span<const float> weights;    // weight of each pair
  absl::Span<const int32_t> rows;     // 0, 1, 2, ...: number of each pair
  // [tokens, top_k]: each token's pairs, in ascending order of expert
  absl::Span<const int32_t> slot_rows;
  absl::Span<const float> slot_weights;  // [tokens, top_k]: weights in the order of slot_rows

  int32_t Begin(size_t expert) const { return expert == 0 ? 0 : ends[expert - 1]; }
  int32_t RowsOf(size_t expert) const { return ends[expert] - Begin(expert); }
  // Returns the position of `expert` in `experts`, or experts.size() if it is missing.
  size_t Find(int32_t expert) const;
};

// Makes a plan. `ids` and `weights` are [tokens, top_k]. The ids of one token are distinct. The
// plan depends only on the arguments. The arena is in the host's memory.
ExpertPlan MakeExpertPlan(absl::Span<const int32_t> ids, const float* weights, int top_k,
                          kernels::Arena* arena);

// The memory of a plan. All arrays are [tokens * top_k], except for `filled`, which is [tokens].
struct ExpertPlanMemory {
  int32_t* order = nullptr;
  int32_t* experts = nullptr;
  int32_t* ends = nullptr;
  int32_t* tokens = nullptr;
  float* weights = nullptr;
  int32_t* rows = nullptr;
  int32_t* slot_rows = nullptr;
  float* slot_weights = nullptr;
  int32_t* filled = nullptr;
};
ExpertPlanMemory AllocateExpertPlan(int64_t tokens, int top_k, kernels::Arena* arena);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_PLAN_H_
