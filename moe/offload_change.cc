#include "moe/offload_change.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace tidepool::moe {

absl::StatusOr<int64_t> SlotsAfter(const OffloadChange& change, const TierMemory& memory) {
  const int64_t record = memory.record_bytes;
  if (!change.expert_memory_bytes.has_value() && !change.expert_memory_share.has_value()) {
    return memory.slots;
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
          absl::StrCat("expert_memory_share is ", share, "; accepted: above 0 and at most 1"));
    }
    // A share of 1 means a slot for every expert, and the staging records in addition.
    // --expert-memory 100% means the same.
    budget = share == 1 ? (memory.all_experts + memory.staging) * record
                        : static_cast<int64_t>(share * static_cast<double>(memory.expert_bytes));
    given = absl::StrCat("expert_memory_share is ", share, ", which is ", budget, " bytes");
  }
  const int64_t least = std::min(memory.top_k, memory.all_experts);
  if (budget / record < memory.staging + least) {
    return absl::InvalidArgumentError(
        absl::StrCat(given, "; accepted: ", (memory.staging + least) * record,
                     " bytes or more, for ", memory.staging, " staging records and the ", least,
                     " experts of one token in one layer, ", record, " bytes each"));
  }
  const int64_t slots = std::min(memory.all_experts, budget / record - memory.staging);
  const int64_t more = (slots + memory.staging - memory.in_use) * record;
  if (slots > memory.slots && change.available_bytes.has_value() &&
      more > *change.available_bytes) {
    const int64_t left = std::max<int64_t>(0, *change.available_bytes);
    return absl::ResourceExhaustedError(absl::StrCat(
        given, " and needs ", more, " bytes more than experts use now; accepted: up to ",
        left + memory.in_use * record,
        " bytes, because the other free memory is for --reserve-memory and KV"));
  }
  return slots;
}

absl::StatusOr<PolicyOptions> PolicyAfter(const OffloadChange& change, const PolicyOptions& policy,
                                          absl::Span<const int64_t> uses) {
  PolicyOptions after = policy;
  after.kind = change.policy.value_or(policy.kind);
  after.refresh_interval = change.refresh_interval.value_or(policy.refresh_interval);
  if (after.refresh_interval < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("refresh_interval is ", after.refresh_interval, "; accepted: 1 or more"));
  }
  if (change.policy == PolicyKind::kStatic && policy.profile.empty()) {
    if (std::all_of(uses.begin(), uses.end(), [](int64_t count) { return count == 0; })) {
      return absl::FailedPreconditionError(
          "policy is static, and no expert has been used yet; serve requests first, or start with "
          "--profile TRACE, which --trace-experts writes");
    }
    after.profile.assign(uses.begin(), uses.end());
  }
  return after;
}

bool ReplacesPolicy(const OffloadChange& change, const PolicyOptions& before,
                    const PolicyOptions& after) {
  return after.kind != before.kind || change.policy == PolicyKind::kStatic ||
         (after.kind == PolicyKind::kTide && after.refresh_interval != before.refresh_interval);
}

}  // namespace tidepool::moe
