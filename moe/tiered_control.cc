// TieredExperts as an OffloadControl.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "moe/tiered_experts.h"

namespace tidepool::moe {

OffloadSettings TieredExperts::Settings() const {
  return {.policy = options_.policy.kind,
          .refresh_interval = options_.policy.refresh_interval,
          .prefetch = options_.prefetch,
          .expert_memory_bytes = pool_.limit() * pool_.buffer_bytes(),
          .slots = placement_->shape().slots,
          .staging = options_.staging,
          .experts = placement_->shape().all_experts(),
          .record_bytes = pool_.buffer_bytes()};
}

absl::StatusOr<int64_t> TieredExperts::SlotsAfter(const OffloadChange& change) const {
  const PoolShape& shape = placement_->shape();
  const int64_t record = pool_.buffer_bytes();
  if (!change.expert_memory_bytes.has_value() && !change.expert_memory_share.has_value()) {
    return shape.slots;
  }
  if (change.expert_memory_bytes.has_value() && change.expert_memory_share.has_value()) {
    return absl::InvalidArgumentError(
        "expert_memory_bytes and expert_memory_share are both set; set one of them");
  }
  int64_t budget = change.expert_memory_bytes.value_or(0);
  std::string given = absl::StrCat("expert_memory_bytes is ", budget);
  if (change.expert_memory_share.has_value()) {
    const double share = *change.expert_memory_share;
    if (!(share > 0 && share <= 1)) {
      return absl::InvalidArgumentError(
          absl::StrCat("expert_memory_share is ", share, "; accepted: above 0, to 1"));
    }
    // As at the start: all of them is every expert in a slot, and staging beside.
    budget = share == 1 ? (shape.all_experts() + options_.staging) * record
                        : static_cast<int64_t>(share * static_cast<double>(records_.total_bytes()));
    given = absl::StrCat("expert_memory_share is ", share, ", which is ", budget, " bytes");
  }
  const int64_t least = std::min<int64_t>(shape.top_k, shape.all_experts());
  if (budget / record < options_.staging + least) {
    return absl::InvalidArgumentError(
        absl::StrCat(given, "; accepted: ", (options_.staging + least) * record,
                     " bytes or more, which are ", options_.staging, " staging records and the ",
                     least, " experts of a token's layer, ", record, " bytes each"));
  }
  const int64_t slots = std::min(shape.all_experts(), budget / record - options_.staging);
  const int64_t more = (slots + options_.staging - pool_.in_use()) * record;
  if (slots > shape.slots && change.available_bytes.has_value() && more > *change.available_bytes) {
    const int64_t left = std::max<int64_t>(0, *change.available_bytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        given, " and needs ", more, " bytes more than experts hold now; accepted: up to ",
        left + pool_.in_use() * record,
        " bytes, with the memory that is free beside --reserve-memory and what KV may still take"));
  }
  return slots;
}

absl::StatusOr<PolicyOptions> TieredExperts::PolicyAfter(const OffloadChange& change) const {
  PolicyOptions policy = options_.policy;
  policy.kind = change.policy.value_or(policy.kind);
  policy.refresh_interval = change.refresh_interval.value_or(policy.refresh_interval);
  if (policy.refresh_interval < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("refresh_interval is ", policy.refresh_interval, "; accepted: 1 or more"));
  }
  if (change.policy == PolicyKind::kStatic && policy.profile.empty()) {
    if (std::all_of(uses_.begin(), uses_.end(), [](int64_t uses) { return uses == 0; })) {
      return absl::FailedPreconditionError(
          "policy is static, and no expert was counted yet; serve requests first, or start with "
          "--profile TRACE, which --trace-experts writes");
    }
    policy.profile = uses_;
  }
  return policy;
}

absl::Status TieredExperts::Change(const OffloadChange& change) {
  CHECK(left_ == 0 && lent_ == 0) << "experts are in use";
  ASSIGN_OR_RETURN(const int64_t slots, SlotsAfter(change));
  ASSIGN_OR_RETURN(PolicyOptions policy, PolicyAfter(change));
  if (slots < placement_->shape().slots) RETURN_IF_ERROR(AwaitAllReads());
  if (slots != placement_->shape().slots) {
    const auto limit = static_cast<int32_t>(slots + options_.staging);
    if (limit > pool_.limit()) RETURN_IF_ERROR(pool_.SetLimit(limit));
    ASSIGN_OR_RETURN(const std::vector<ExpertRef> evicted, placement_->Resize(slots));
    Evict(evicted);
    options_.slots = slots;
    CHECK_OK(pool_.SetLimit(limit));
    CHECK_LE(pool_.in_use(), limit);
  }
  // A policy that stays keeps what it has learned. Static is made anew for its counts.
  const bool replaced = policy.kind != options_.policy.kind ||
                        change.policy == PolicyKind::kStatic ||
                        (policy.kind == PolicyKind::kTide &&
                         policy.refresh_interval != options_.policy.refresh_interval);
  if (replaced) {
    const absl::StatusOr<std::vector<ExpertRef>> evicted = placement_->SetPolicy(policy);
    CHECK_OK(evicted.status());  // the options were checked
    Evict(*evicted);
  }
  policy.profile = std::move(options_.policy.profile);
  options_.policy = std::move(policy);
  options_.prefetch = change.prefetch.value_or(options_.prefetch);
  return absl::OkStatus();
}

// Reads hold memory until they end: those of expectations, and those that a request which failed
// has left on their way. A disk that hangs must not hang the engine for good.
absl::Status TieredExperts::AwaitAllReads() {
  WithdrawSpeculative();
  const absl::Duration until = options_.clock->Monotonic() + options_.shrink_patience;
  {
    base::MutexLock lock(&mutex_);
    while (in_flight_ > 0) {
      const absl::Duration left = until - options_.clock->Monotonic();
      if (left <= absl::ZeroDuration()) {
        return absl::UnavailableError(absl::StrCat(
            "memory cannot be given back, and nothing is changed: ", records_.path,
            " has not ended ", in_flight_, " of its reads within ",
            absl::FormatDuration(options_.shrink_patience), "; see to its disk, and retry"));
      }
      arrived_.WaitFor(&mutex_, left);
    }
  }
  TakeArrivals();
  return absl::OkStatus();
}

void TieredExperts::Evict(const std::vector<ExpertRef>& experts) {
  for (const ExpertRef expert : experts) {
    const int64_t index = IndexOf(expert.layer, expert.expert);
    entries_[index].resident = false;
    GiveBackIfIdle(index);
  }
}

ExpertMap TieredExperts::Map() const {
  ExpertMap map = {.layer_numbers = options_.layer_numbers,
                   .experts = placement_->shape().experts,
                   .resident = std::vector<bool>(entries_.size()),
                   .uses = uses_};
  for (size_t i = 0; i < entries_.size(); ++i) {
    map.resident[i] = entries_[i].resident && entries_[i].state == State::kReady;
  }
  return map;
}

}  // namespace tidepool::moe
