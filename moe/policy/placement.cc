#include "moe/policy/placement.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::moe {

PlacementCounters& PlacementCounters::operator+=(const PlacementCounters& other) {
  hits += other.hits;
  promotions += other.promotions;
  pass_throughs += other.pass_throughs;
  evictions += other.evictions;
  return *this;
}

absl::StatusOr<std::unique_ptr<Placement>> Placement::Create(const PoolShape& shape,
                                                             const PolicyOptions& options) {
  RETURN_IF_ERROR(shape.Validate());
  ASSIGN_OR_RETURN(auto policy, MakePolicy(options, shape));
  return std::make_unique<Placement>(shape, std::move(policy));
}

Placement::Placement(const PoolShape& shape, std::unique_ptr<PlacementPolicy> policy)
    : residency_(shape),
      policy_(std::move(policy)),
      counters_(shape.layers),
      tokens_of_(shape.experts, 0) {
  for (const ExpertRef expert : policy_->Fill(residency_)) residency_.Insert(expert);
}

std::vector<ExpertRef> Placement::residents() const {
  std::vector<ExpertRef> residents;
  residents.reserve(residency_.residents());
  for (int64_t index = 0; index < shape().all_experts(); ++index) {
    const ExpertRef expert = residency_.At(index);
    if (residency_.IsResident(expert)) residents.push_back(expert);
  }
  return residents;
}

// Sets needs_. tokens_of_ must be all zeros before, and is all zeros afterwards.
void Placement::CountNeeds(const LayerRouting& routing) {
  needs_.clear();
  for (const int32_t expert : routing.ids) {
    if (expert == LayerRouting::kNoExpert) continue;
    CHECK(expert >= 0 && expert < shape().experts) << "expert " << expert;
    if (tokens_of_[expert]++ == 0) needs_.push_back({expert, 0});
  }
  std::sort(needs_.begin(), needs_.end(),
            [](const ExpertNeed& a, const ExpertNeed& b) { return a.expert < b.expert; });
  for (ExpertNeed& need : needs_) need.tokens = std::exchange(tokens_of_[need.expert], 0);
}

absl::Span<const Lookup> Placement::Decide(const LayerRouting& routing) {
  CHECK(routing.layer >= 0 && routing.layer < shape().layers) << "layer " << routing.layer;
  CHECK_EQ(routing.ids.size(), static_cast<size_t>(routing.tokens * shape().top_k));
  CountNeeds(routing);
  lookups_.clear();
  for (const ExpertNeed& need : needs_) {
    const bool resident = residency_.IsResident({routing.layer, need.expert});
    lookups_.push_back({.expert = need.expert,
                        .tokens = need.tokens,
                        .action = resident ? LookupAction::kHit : LookupAction::kPassThrough});
  }
  swaps_.clear();
  policy_->Decide({routing, needs_}, residency_, &swaps_);
  Apply(routing.layer);
  PlacementCounters& counters = counters_[routing.layer];
  for (const Lookup& lookup : lookups_) {
    counters.hits += lookup.action == LookupAction::kHit;
    counters.promotions += lookup.action == LookupAction::kInsert;
    counters.pass_throughs += lookup.action == LookupAction::kPassThrough;
  }
  return lookups_;
}

void Placement::Apply(int layer) {
  for (const Swap& swap : swaps_) {
    const auto lookup =
        std::lower_bound(lookups_.begin(), lookups_.end(), swap.expert,
                         [](const Lookup& l, int32_t expert) { return l.expert < expert; });
    CHECK(lookup != lookups_.end() && lookup->expert == swap.expert &&
          lookup->action == LookupAction::kPassThrough)
        << policy_->name() << " inserts expert " << swap.expert << ", which was not a miss";
    const ExpertRef newcomer{layer, swap.expert};
    if (swap.victim.valid()) {
      residency_.Replace(swap.victim, newcomer);
      ++counters_[swap.victim.layer].evictions;
    } else {
      residency_.Insert(newcomer);
    }
    lookup->action = LookupAction::kInsert;
    lookup->victim = swap.victim;
  }
}

void Placement::Forget(ExpertRef expert) {
  if (residency_.IsResident(expert)) residency_.Remove(expert);
}

std::vector<ExpertRef> Placement::RemoveShed(int64_t slots) {
  std::vector<ExpertRef> evicted = policy_->Shed(residency_, slots);
  for (const ExpertRef expert : evicted) {
    residency_.Remove(expert);
    ++counters_[expert.layer].evictions;
  }
  return evicted;
}

absl::StatusOr<std::vector<ExpertRef>> Placement::Resize(int64_t slots) {
  PoolShape resized = shape();
  resized.slots = slots;
  RETURN_IF_ERROR(resized.Validate());
  if (const int64_t pinned = residency_.pinned(); pinned > slots) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%d slots are too few: experts in use need %d; try again", slots, pinned));
  }
  std::vector<ExpertRef> evicted = RemoveShed(slots);
  residency_.Resize(slots);
  return evicted;
}

absl::StatusOr<std::vector<ExpertRef>> Placement::SetPolicy(const PolicyOptions& options) {
  ASSIGN_OR_RETURN(policy_, MakePolicy(options, shape()));
  return RemoveShed(residency_.slots());
}

PlacementCounters Placement::Total() const {
  PlacementCounters total;
  for (const PlacementCounters& counters : counters_) total += counters;
  return total;
}

}  // namespace tidepool::moe
