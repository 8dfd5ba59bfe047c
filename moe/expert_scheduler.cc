#include "moe/expert_scheduler.h"

#include <algorithm>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops.h"

namespace tidepool::moe {
namespace {

using kernels::Activation;
using kernels::Arena;
using kernels::ExpertGroup;
using kernels::MatrixView;

}  // namespace

ExpertScheduler::Plan ExpertScheduler::MakePlan(const Routing& routing, int64_t tokens,
                                                Arena* arena) {
  const int64_t pairs = tokens * routing.top_k;
  // Pair indices by expert, and within one by token: a stable order that only the routing decides.
  int32_t* order = arena->Allocate<int32_t>(pairs);
  for (int64_t i = 0; i < pairs; ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order, order + pairs, [ids = routing.ids](int32_t a, int32_t b) {
    return ids[a] != ids[b] ? ids[a] < ids[b] : a < b;
  });

  int32_t* experts = arena->Allocate<int32_t>(pairs);
  int32_t* ends = arena->Allocate<int32_t>(pairs);
  int32_t* pair_tokens = arena->Allocate<int32_t>(pairs);
  int32_t* rows = arena->Allocate<int32_t>(pairs);
  int32_t* slot_rows = arena->Allocate<int32_t>(pairs);
  float* slot_weights = arena->Allocate<float>(pairs);
  int32_t* filled = arena->Allocate<int32_t>(tokens);
  std::fill_n(filled, tokens, 0);
  int64_t distinct = 0;
  for (int64_t i = 0; i < pairs; ++i) {
    const int32_t expert = routing.ids[order[i]];
    const int32_t token = order[i] / routing.top_k;
    if (i == 0 || expert != experts[distinct - 1]) experts[distinct++] = expert;
    ends[distinct - 1] = static_cast<int32_t>(i + 1);
    pair_tokens[i] = token;
    rows[i] = static_cast<int32_t>(i);
    // Pairs come by ascending expert, so each token's slots fill in that order.
    const int64_t slot = int64_t{token} * routing.top_k + filled[token]++;
    slot_rows[slot] = static_cast<int32_t>(i);
    slot_weights[slot] = routing.weights[order[i]];
  }
  return {absl::MakeConstSpan(experts, distinct),  absl::MakeConstSpan(ends, distinct),
          absl::MakeConstSpan(pair_tokens, pairs), absl::MakeConstSpan(rows, pairs),
          absl::MakeConstSpan(slot_rows, pairs),   absl::MakeConstSpan(slot_weights, pairs)};
}

absl::Status ExpertScheduler::ComputeWaves(const Plan& plan, const Activation& x,
                                           MatrixView expert_out, Arena* arena) {
  std::vector<bool> done(plan.experts.size(), false);
  size_t left = plan.experts.size();
  std::vector<ExpertGroup> groups;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<ReadyExpert> wave, source_->NextReady());
    if (wave.empty()) break;
    groups.clear();
    for (const ReadyExpert& ready : wave) {
      const auto at = std::lower_bound(plan.experts.begin(), plan.experts.end(), ready.expert);
      const size_t i = at - plan.experts.begin();
      CHECK(at != plan.experts.end() && *at == ready.expert && !done[i])
          << "the source gave expert " << ready.expert
          << ", which was not asked for or came before";
      done[i] = true;
      --left;
      ++(ready.found == Found::kResident ? lookups_.hits : lookups_.misses);
      const int32_t begin = i == 0 ? 0 : plan.ends[i - 1];
      const int32_t count = plan.ends[i] - begin;
      groups.push_back(
          {ready.weights, plan.tokens.subspan(begin, count), plan.rows.subspan(begin, count)});
    }
    backend_->GroupedFfn(x, groups, expert_out, arena);
  }
  CHECK_EQ(left, size_t{0}) << "experts that the source never gave out";
  return absl::OkStatus();
}

absl::Status ExpertScheduler::Run(const Routing& routing, const Activation& x, MatrixView out,
                                  Arena* arena) {
  const int64_t tokens = x.values.rows;
  CHECK_EQ(tokens, out.rows);
  CHECK_GT(routing.top_k, 0);
  if (tokens == 0) return absl::OkStatus();
  const size_t mark = arena->used();
  const Plan plan = MakePlan(routing, tokens, arena);
  const MatrixView expert_out = arena->AllocateMatrix(tokens * routing.top_k, out.cols);

  const size_t pairs = static_cast<size_t>(tokens) * routing.top_k;
  source_->Request({.step = routing.step,
                    .layer = routing.moe_layer,
                    .tokens = tokens,
                    .ids = absl::MakeConstSpan(routing.ids, pairs),
                    .weights = absl::MakeConstSpan(routing.weights, pairs),
                    .phases = routing.phases,
                    .requests = routing.requests},
                   plan.experts);
  if (routing.asked != nullptr) (*routing.asked)();
  const absl::Status computed = ComputeWaves(plan, x, expert_out, arena);
  if (computed.ok()) {
    backend_->CombineExperts(expert_out, routing.top_k, plan.slot_rows.data(),
                             plan.slot_weights.data(), out);
  }
  arena->ResetTo(mark);
  return computed;
}

size_t ExpertScheduler::WorkspaceBytes(const ExpertShape& shape) {
  const int64_t pairs = shape.tokens * shape.top_k;
  const int64_t groups = std::min<int64_t>(pairs, shape.experts);
  constexpr int kArrays = 9;  // of MakePlan, and expert_out
  return (7 * pairs + shape.tokens) * sizeof(int32_t) + pairs * shape.hidden * sizeof(float) +
         kArrays * kernels::kAlignment + kernels::GroupedFfnBytes(pairs, groups, shape.width);
}

ExpertLookups ExpertScheduler::TakeLookups() { return std::exchange(lookups_, ExpertLookups()); }

}  // namespace tidepool::moe
