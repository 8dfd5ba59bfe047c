// What an operator's change of the expert tier comes to: checked, before anything changes.
#ifndef TIDEPOOL_MOE_OFFLOAD_CHANGE_H_
#define TIDEPOOL_MOE_OFFLOAD_CHANGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "moe/offload_control.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// What a tier has now. Plain data.
struct TierMemory {
  int64_t slots = 0;
  int64_t staging = 0;
  int64_t in_use = 0;       // slots and staging records that hold memory
  int64_t all_experts = 0;  // of all layers
  int64_t top_k = 0;
  int64_t record_bytes = 0;  // of a slot
  int64_t expert_bytes = 0;  // of all experts
};

// Pure. The slots after the change. INVALID_ARGUMENT names the field, its value and what is
// accepted; RESOURCE_EXHAUSTED: growth past change.available_bytes.
absl::StatusOr<int64_t> SlotsAfter(const OffloadChange& change, const TierMemory& memory);

// Pure. The policy after the change; kStatic without a profile gets `uses`. INVALID_ARGUMENT as
// above; FAILED_PRECONDITION: kStatic, with neither a profile nor a use.
absl::StatusOr<PolicyOptions> PolicyAfter(const OffloadChange& change, const PolicyOptions& policy,
                                          absl::Span<const int64_t> uses);

// Pure. Whether the policy has to be replaced, and loses what it has learned. A change to kStatic
// always replaces it: the counts are new.
bool ReplacesPolicy(const OffloadChange& change, const PolicyOptions& before,
                    const PolicyOptions& after);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_OFFLOAD_CHANGE_H_
