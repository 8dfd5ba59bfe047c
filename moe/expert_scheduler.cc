#include "moe/expert_scheduler.h"

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/bounded_moe_layer.h"

namespace tidepool::moe {
namespace {

using kernels::Activation;
using kernels::Arena;
using kernels::ExpertGroup;
using kernels::MatrixView;

// Returns the number of rows of `cols` floats that fit into `bytes`.
int64_t RowsIn(int64_t bytes, int64_t cols) {
  constexpr int64_t kMin = 64;
  return std::max(kMin, bytes / (cols * static_cast<int64_t>(sizeof(float))));
}

}  // namespace

ExpertScheduler::ExpertScheduler(kernels::KernelBackend* backend, ExpertSource* source,
                                 kernels::KernelBackend* host_backend,
                                 const SchedulerMemory& memory, const base::Clock* clock)
    : backend_(backend), source_(source), memory_(memory) {
  if (host_backend == nullptr) return;
  CHECK(host_backend->precision() == backend->precision()) << "the lanes would differ in bits";
  cpu_lane_ = std::make_unique<CpuLane>(host_backend, backend, clock);
}

ExpertScheduler::~ExpertScheduler() = default;

// Computes experts as they become ready. Each pair has its own row for the result.
absl::Status ExpertScheduler::ComputeWaves(const ExpertPlan& plan, const Activation& x,
                                           MatrixView expert_out, Arena* arena) {
  std::vector<bool> done(plan.experts.size(), false);
  size_t left = plan.experts.size();
  std::vector<ExpertGroup> groups;
  while (true) {
    ASSIGN_OR_RETURN(const std::vector<ReadyExpert> wave, source_->NextReady(Patience::kUntilOne));
    if (wave.empty()) break;
    ++heartbeat_;
    groups.clear();
    for (const ReadyExpert& ready : wave) {
      const size_t i = plan.Find(ready.expert);
      CHECK(i < plan.experts.size() && !done[i])
          << "the source returned expert " << ready.expert
          << ", which was not requested or was already returned";
      done[i] = true;
      --left;
      ++(ready.found == Found::kResident ? lookups_.hits : lookups_.misses);
      const auto count = static_cast<size_t>(plan.RowsOf(i));
      if (ready.place == Place::kHost) {
        CHECK(cpu_lane_ != nullptr) << "there is no backend for expert " << ready.expert;
        continue;
      }
      groups.push_back({ready.weights, plan.tokens.subspan(plan.Begin(i), count),
                        plan.rows.subspan(plan.Begin(i), count)});
    }
    const int64_t most = CallRows(memory_.call_bytes, wave[0].weights->gate.rows);
    if (!groups.empty()) {
      for (const std::vector<ExpertGroup>& call : InCalls(groups, most)) {
        backend_->GroupedFfn(x, call, expert_out, arena);
      }
    }
    // The device computes meanwhile, because its ops only begin in the calls above.
    if (cpu_lane_ != nullptr) cpu_lane_->Compute(wave, expert_out, source_);
    for (const ReadyExpert& ready : wave) source_->Release(ready.expert);
  }
  CHECK_EQ(left, size_t{0}) << "experts that the source never returned";
  return absl::OkStatus();
}

absl::Status ExpertScheduler::RunWhole(const Routing& routing, const ExpertPlan& plan,
                                       const Activation& x, MatrixView out, Arena* arena) {
  const MatrixView expert_out =
      arena->AllocateMatrix(static_cast<int64_t>(plan.tokens.size()), out.cols);
  RETURN_IF_ERROR(ComputeWaves(plan, x, expert_out, arena));
  backend_->CombineExperts(expert_out, routing.top_k, plan.slot_rows.data(),
                           plan.slot_weights.data(), out);
  return absl::OkStatus();
}

absl::Status ExpertScheduler::RunOrdered(const ExpertPlan& plan, const Activation& x,
                                         MatrixView out, Arena* arena) {
  const MatrixView kept = arena->AllocateMatrix(RowsIn(memory_.kept_bytes, out.cols), out.cols);
  const MatrixView sum = arena->AllocateMatrix(out.rows, out.cols);
  backend_->Zero(sum);
  BoundedMoeLayer layer({.backend = backend_,
                         .source = source_,
                         .plan = &plan,
                         .x = x,
                         .kept = kept,
                         .call_bytes = memory_.call_bytes,
                         .arena = arena,
                         .heartbeat = &heartbeat_});
  const absl::Status computed = layer.Run(sum);
  lookups_.hits += layer.hits();
  lookups_.misses += layer.misses();
  RETURN_IF_ERROR(computed);
  backend_->Add(sum, out);
  return absl::OkStatus();
}

// Returns the arena for a plan. A plan must be in the host's memory.
Arena* ExpertScheduler::PlanArena(int64_t tokens, int top_k, Arena* arena) {
  if (backend_->memory()->on_host()) return arena;
  Arena counting = Arena::Counting();
  AllocateExpertPlan(tokens, top_k, &counting);
  if (!plan_arena_.has_value() || plan_arena_->capacity() < counting.high_water()) {
    plan_arena_.emplace(counting.high_water());
  }
  plan_arena_->Reset();
  return &*plan_arena_;
}

absl::Status ExpertScheduler::Run(const Routing& routing, const Activation& x, MatrixView out,
                                  Arena* arena) {
  const int64_t tokens = x.values.rows;
  CHECK_EQ(tokens, out.rows);
  CHECK_GT(routing.top_k, 0);
  if (tokens == 0) return absl::OkStatus();
  const size_t mark = arena->used();
  const size_t pairs = static_cast<size_t>(tokens) * routing.top_k;
  const absl::Span<const int32_t> ids = absl::MakeConstSpan(routing.ids, pairs);
  const ExpertPlan plan =
      MakeExpertPlan(ids, routing.weights, routing.top_k, PlanArena(tokens, routing.top_k, arena));
  const bool fits = static_cast<int64_t>(pairs) <= RowsIn(memory_.whole_bytes, out.cols);
  const bool host_lane = fits && UsesHostX(tokens) && routing.host_x.data != nullptr;
  source_->Request({.step = routing.step,
                    .layer = routing.moe_layer,
                    .tokens = tokens,
                    .ids = ids,
                    .weights = absl::MakeConstSpan(routing.weights, pairs),
                    .phases = routing.phases,
                    .requests = routing.requests,
                    .host_lane = host_lane ? HostLane::kOn : HostLane::kOff},
                   plan.experts);
  if (routing.asked.has_value()) (*routing.asked)();
  if (host_lane) cpu_lane_->Begin(&plan, routing.host_x, memory_.call_bytes);
  const absl::Status computed =
      fits ? RunWhole(routing, plan, x, out, arena) : RunOrdered(plan, x, out, arena);
  if (host_lane) cpu_lane_->End();
  arena->ResetTo(mark);
  return computed;
}

void ExpertScheduler::Measure(const ExpertShape& shape, kernels::KernelBackend* counting,
                              Arena* arena) const {
  const size_t mark = arena->used();
  const int64_t pairs = shape.tokens * shape.top_k;
  Arena host = Arena::Counting();
  const ExpertPlanMemory plan =
      AllocateExpertPlan(shape.tokens, shape.top_k, backend_->memory()->on_host() ? arena : &host);
  if (shape.asked.has_value()) (*shape.asked)();
  const int64_t call = std::min(pairs, CallRows(memory_.call_bytes, shape.expert->gate.rows));
  const auto rows = absl::MakeConstSpan(plan.rows, call);
  const ExpertGroup group = {shape.expert, rows, rows};
  const auto measure = [&](std::initializer_list<int64_t> matrices) {
    const size_t begin = arena->used();
    for (const int64_t matrix : matrices) arena->AllocateMatrix(matrix, shape.hidden);
    counting->GroupedFfn(Activation(), {&group, 1}, MatrixView(), arena);
    arena->ResetTo(begin);
  };
  const int64_t whole = RowsIn(memory_.whole_bytes, shape.hidden);
  measure({std::min(pairs, whole)});
  if (pairs > whole) measure({RowsIn(memory_.kept_bytes, shape.hidden), shape.tokens});
  arena->ResetTo(mark);
}

ExpertLookups ExpertScheduler::TakeLookups() { return std::exchange(lookups_, ExpertLookups()); }

}  // namespace tidepool::moe
