#include "moe/tier_slots.h"

#include <string>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::moe {

absl::StatusOr<TierSlots> TierSlots::Create(const ExpertRecords& records, Options options) {
  CHECK(!records.layers.empty() && options.staging > 0);
  const PoolShape shape = {.layers = static_cast<int>(records.layers.size()),
                           .experts = static_cast<int>(records.layers.front().size()),
                           .top_k = options.top_k,
                           .slots = options.slots,
                           .miss_cost = MissCosts(records.layer_bytes())};
  ASSIGN_OR_RETURN(std::unique_ptr<Placement> placement, Placement::Create(shape, options.policy));
  return TierSlots(std::move(options), std::move(placement));
}

TierSlots::TierSlots(Options options, std::unique_ptr<Placement> placement)
    : options_(std::move(options)),
      placement_(std::move(placement)),
      uses_(placement_->shape().all_experts(), 0) {}

absl::Span<const Lookup> TierSlots::Decide(const LayerRouting& routing) {
  const absl::Span<const Lookup> lookups = placement_->Decide(routing);
  for (const Lookup& lookup : lookups) {
    ++uses_[placement_->residency().IndexOf({routing.layer, lookup.expert})];
  }
  return lookups;
}

absl::StatusOr<int64_t> TierSlots::SlotsAfterChange(const OffloadChange& change, int64_t committed,
                                                    const ExpertRecords& records) const {
  const PoolShape& shape = placement_->shape();
  return SlotsAfter(change, {.slots = shape.slots,
                             .staging = options_.staging,
                             .in_use = committed,
                             .all_experts = shape.all_experts(),
                             .top_k = shape.top_k,
                             .record_bytes = records.largest_bytes(),
                             .expert_bytes = records.total_bytes()});
}

std::vector<ExpertRef> TierSlots::SetPolicy(const OffloadChange& change, PolicyOptions policy) {
  std::vector<ExpertRef> evicted;
  if (ReplacesPolicy(change, options_.policy, policy)) {
    absl::StatusOr<std::vector<ExpertRef>> shed = placement_->SetPolicy(policy);
    CHECK_OK(shed.status());  // this cannot fail, because the options were checked
    evicted = *std::move(shed);
  }
  policy.profile = std::move(options_.policy.profile);
  options_.policy = std::move(policy);
  return evicted;
}

OffloadSettings TierSlots::Settings(const PoolUse& pool, Prefetch prefetch) const {
  return {.policy = options_.policy.kind,
          .refresh_interval = options_.policy.refresh_interval,
          .prefetch = prefetch,
          .expert_memory_bytes = pool.limit * pool.buffer_bytes,
          .slots = placement_->shape().slots,
          .staging = options_.staging,
          .experts = placement_->shape().all_experts(),
          .record_bytes = pool.buffer_bytes};
}

ExpertMap TierSlots::Map(absl::FunctionRef<bool(int64_t)> is_resident) const {
  ExpertMap map = {.layer_numbers = options_.layer_numbers,
                   .experts = placement_->shape().experts,
                   .resident = std::vector<bool>(uses_.size()),
                   .uses = uses_};
  for (size_t i = 0; i < uses_.size(); ++i) map.resident[i] = is_resident(static_cast<int64_t>(i));
  return map;
}

void TierSlots::Describe(const PoolUse& pool, Prefetch prefetch, OffloadStats* stats) const {
  stats->slots = placement_->shape().slots;
  stats->staging = options_.staging;
  stats->experts = placement_->shape().all_experts();
  stats->capacity_bytes = pool.limit * pool.buffer_bytes;
  stats->resident_bytes = pool.in_use * pool.buffer_bytes;
  stats->record_bytes = pool.buffer_bytes;
  stats->policy = std::string(placement_->policy_name());
  stats->refresh_interval = options_.policy.refresh_interval;
  stats->prefetch = prefetch;
  stats->placement = placement_->Total();
  stats->layers.clear();
  for (size_t i = 0; i < options_.layer_numbers.size(); ++i) {
    stats->layers.push_back({options_.layer_numbers[i], placement_->counters()[i]});
  }
}

}  // namespace tidepool::moe
