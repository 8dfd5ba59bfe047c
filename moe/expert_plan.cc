#include "moe/expert_plan.h"

#include <algorithm>

namespace tidepool::moe {

size_t ExpertPlan::Find(int32_t expert) const {
  const auto at = std::lower_bound(experts.begin(), experts.end(), expert);
  if (at == experts.end() || *at != expert) return experts.size();
  return static_cast<size_t>(at - experts.begin());
}

ExpertPlan MakeExpertPlan(absl::Span<const int32_t> ids, const float* weights, int top_k,
                          kernels::Arena* arena) {
  const auto pairs = static_cast<int64_t>(ids.size());
  const int64_t tokens = pairs / top_k;
  // Pair indices sorted by expert, then by token. So the order depends only on the routing.
  int32_t* order = arena->Allocate<int32_t>(pairs);
  for (int64_t i = 0; i < pairs; ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order, order + pairs,
            [ids](int32_t a, int32_t b) { return ids[a] != ids[b] ? ids[a] < ids[b] : a < b; });

  int32_t* experts = arena->Allocate<int32_t>(pairs);
  int32_t* ends = arena->Allocate<int32_t>(pairs);
  int32_t* pair_tokens = arena->Allocate<int32_t>(pairs);
  float* pair_weights = arena->Allocate<float>(pairs);
  int32_t* rows = arena->Allocate<int32_t>(pairs);
  int32_t* slot_rows = arena->Allocate<int32_t>(pairs);
  float* slot_weights = arena->Allocate<float>(pairs);
  int32_t* filled = arena->Allocate<int32_t>(tokens);
  std::fill_n(filled, tokens, 0);
  int64_t distinct = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    const int32_t expert = ids[order[i]];
    const int32_t token = order[i] / top_k;
    if (i == 0 || expert != experts[distinct - 1]) experts[distinct++] = expert;
    ends[distinct - 1] = static_cast<int32_t>(i + 1);
    pair_tokens[i] = token;
    pair_weights[i] = weights[order[i]];
    rows[i] = static_cast<int32_t>(i);
    // Pairs come in ascending order of experts, so each token's slots are filled in that order.
    const int64_t slot = int64_t{token} * top_k + filled[token]++;
    slot_rows[slot] = static_cast<int32_t>(i);
    slot_weights[slot] = weights[order[i]];
  }
  return {absl::MakeConstSpan(experts, distinct),  absl::MakeConstSpan(ends, distinct),
          absl::MakeConstSpan(pair_tokens, pairs), absl::MakeConstSpan(pair_weights, pairs),
          absl::MakeConstSpan(rows, pairs),        absl::MakeConstSpan(slot_rows, pairs),
          absl::MakeConstSpan(slot_weights, pairs)};
}

size_t ExpertPlanBytes(int64_t tokens, int top_k) {
  constexpr int kArrays = 9;
  return (8 * tokens * top_k + tokens) * sizeof(int32_t) + kArrays * kernels::kAlignment;
}

}  // namespace tidepool::moe
