#include "moe/expert_plan.h"

#include <algorithm>

namespace tidepool::moe {

size_t ExpertPlan::Find(int32_t expert) const {
  const auto at = std::lower_bound(experts.begin(), experts.end(), expert);
  if (at == experts.end() || *at != expert) return experts.size();
  return static_cast<size_t>(at - experts.begin());
}

ExpertPlanMemory AllocateExpertPlan(int64_t tokens, int top_k, kernels::Arena* arena) {
  const int64_t pairs = tokens * top_k;
  return {.order = arena->Allocate<int32_t>(pairs),
          .experts = arena->Allocate<int32_t>(pairs),
          .ends = arena->Allocate<int32_t>(pairs),
          .tokens = arena->Allocate<int32_t>(pairs),
          .weights = arena->Allocate<float>(pairs),
          .rows = arena->Allocate<int32_t>(pairs),
          .slot_rows = arena->Allocate<int32_t>(pairs),
          .slot_weights = arena->Allocate<float>(pairs),
          .filled = arena->Allocate<int32_t>(tokens)};
}

ExpertPlan MakeExpertPlan(absl::Span<const int32_t> ids, const float* weights, int top_k,
                          kernels::Arena* arena) {
  const auto pairs = static_cast<int64_t>(ids.size());
  const int64_t tokens = pairs / top_k;
  const ExpertPlanMemory plan = AllocateExpertPlan(tokens, top_k, arena);
  // The indices of the pairs, sorted by expert and then by token. So the order depends only on the
  // routing.
  int32_t* const order = plan.order;
  for (int64_t i = 0; i < pairs; ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order, order + pairs,
            [ids](int32_t a, int32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });

  std::fill_n(plan.filled, tokens, 0);
  int64_t distinct = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    const int32_t expert = ids[order[i]];
    const int32_t token = order[i] / top_k;
    if (i == 0 || expert != plan.experts[distinct - 1]) plan.experts[distinct++] = expert;
    plan.ends[distinct - 1] = static_cast<int32_t>(i + 1);
    plan.tokens[i] = token;
    plan.weights[i] = weights[order[i]];
    plan.rows[i] = static_cast<int32_t>(i);
    // Pairs are in ascending order of experts, so each token's slots are filled in this order.
    const int64_t slot = int64_t{token} * top_k + plan.filled[token]++;
    plan.slot_rows[slot] = static_cast<int32_t>(i);
    plan.slot_weights[slot] = weights[order[i]];
  }
  return {absl::MakeConstSpan(plan.experts, distinct),  absl::MakeConstSpan(plan.ends, distinct),
          absl::MakeConstSpan(plan.tokens, pairs),      absl::MakeConstSpan(plan.weights, pairs),
          absl::MakeConstSpan(plan.rows, pairs),        absl::MakeConstSpan(plan.slot_rows, pairs),
          absl::MakeConstSpan(plan.slot_weights, pairs)};
}

}  // namespace tidepool::moe
