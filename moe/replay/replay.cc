#include "moe/replay/replay.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "moe/replay/oracles.h"

namespace tidepool::moe {
namespace {

// Estimates the seconds that one layer takes in one forward pass.
double LayerSeconds(absl::Span<const Lookup> lookups, double expert_bytes, const CostModel& cost) {
  const double run = expert_bytes / cost.memory_bytes_per_s;
  const double read = expert_bytes / cost.read_bytes_per_s;
  double done = 0;
  for (const Lookup& lookup : lookups) done += lookup.action == LookupAction::kHit ? run : 0;
  double arrival = 0;
  for (const Lookup& lookup : lookups) {
    if (lookup.action == LookupAction::kHit) continue;
    arrival += read;
    done = std::max(done, arrival) + run;
  }
  return done;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Placement>> MakePlacement(const Trace& trace, int64_t slots,
                                                         const ReplayPolicy& policy) {
  const PoolShape shape{.layers = trace.header.layers,
                        .experts = trace.header.experts,
                        .top_k = trace.header.top_k,
                        .slots = slots,
                        .miss_cost = MissCosts(trace.header.expert_bytes)};
  RETURN_IF_ERROR(shape.Validate());
  if (policy.name == "belady") return std::make_unique<Placement>(shape, MakeBelady(trace));
  if (policy.name == "hindsight") return std::make_unique<Placement>(shape, MakeHindsight(trace));
  PolicyOptions options = policy.options;
  const absl::StatusOr<PolicyKind> kind = ParsePolicyKind(policy.name);
  if (!kind.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind.status().message(), "; replay also has belady and hindsight"));
  }
  options.kind = *kind;
  return Placement::Create(shape, options);
}

ReplayResult Replay(const Trace& trace, const CostModel& cost, Placement* placement) {
  ReplayResult result{.policy = std::string(placement->policy_name()),
                      .slots = placement->residency().slots()};
  double seconds = 0;
  const TraceEntry* last = nullptr;
  for (const TraceEntry& entry : trace.entries) {
    if (BeginsForward(last, entry)) ++result.forwards;
    last = &entry;
    const absl::Span<const Lookup> lookups = placement->Decide(entry.routing(trace.header.top_k));
    const int64_t bytes = trace.header.expert_bytes[entry.layer];
    for (const Lookup& lookup : lookups) {
      if (lookup.action != LookupAction::kHit) result.bytes_moved += bytes;
    }
    seconds += LayerSeconds(lookups, static_cast<double>(bytes), cost);
  }
  result.counters = placement->Total();
  if (result.forwards > 0) result.step_ms = 1e3 * seconds / static_cast<double>(result.forwards);
  return result;
}

}  // namespace tidepool::moe
