// Checks an operator's change of the expert tier, and computes its result before anything changes.
#ifndef TIDEPOOL_MOE_OFFLOAD_CHANGE_H_
#define TIDEPOOL_MOE_OFFLOAD_CHANGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "moe/offload_control.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// The memory of a tier now. Plain data.
struct TierMemory {
  int64_t slots = 0;
  int64_t staging = 0;
  int64_t in_use = 0;       // slots and staging records that have memory
  int64_t all_experts = 0;  // in all layers
  int64_t top_k = 0;
  int64_t record_bytes = 0;  // bytes of a slot
  int64_t expert_bytes = 0;  // bytes of all experts
};

// Pure. Returns the number of slots after the change. INVALID_ARGUMENT names the field, its value
// and what is accepted. RESOURCE_EXHAUSTED if the tier would grow by more than
// change.available_bytes.
absl::StatusOr<int64_t> SlotsAfter(const OffloadChange& change, const TierMemory& memory);

// Pure. Returns the policy after the change. kStatic without a profile gets `uses`.
// INVALID_ARGUMENT as above. FAILED_PRECONDITION for kStatic if there is neither a profile nor any
// use.
absl::StatusOr<PolicyOptions> PolicyAfter(const OffloadChange& change, const PolicyOptions& policy,
                                          absl::Span<const int64_t> uses);

// Pure. Returns true if a new policy object is needed, which loses what the old one has learned. A
// change to kStatic always needs one, because the counts are new.
bool ReplacesPolicy(const OffloadChange& change, const PolicyOptions& before,
                    const PolicyOptions& after);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_OFFLOAD_CHANGE_H_
