// Checks an operator's change of the experts' memory, and computes the result before anything
// changes.
#ifndef TIDEPOOL_MOE_OFFLOAD_CHANGE_H_
#define TIDEPOOL_MOE_OFFLOAD_CHANGE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "moe/offload_control.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// The current memory for experts. Plain data.
struct TierMemory {
  int64_t slots = 0;
  int64_t staging = 0;
  int64_t in_use = 0;       // number of slots and staging records that have memory
  int64_t all_experts = 0;  // number of experts in all layers
  int64_t top_k = 0;
  int64_t record_bytes = 0;  // bytes of a slot
  int64_t expert_bytes = 0;  // bytes of all experts
};

// Pure. Returns the number of slots after the change. Returns INVALID_ARGUMENT with the field, its
// value and the accepted values. Returns RESOURCE_EXHAUSTED if the memory would grow by more than
// change.available_bytes.
absl::StatusOr<int64_t> SlotsAfter(const OffloadChange& change, const TierMemory& memory);

// Pure. Returns the policy's options after the change. If kStatic has no profile, `uses` becomes
// its profile. Returns INVALID_ARGUMENT like SlotsAfter, and FAILED_PRECONDITION if kStatic has no
// profile and no expert was used yet.
absl::StatusOr<PolicyOptions> PolicyAfter(const OffloadChange& change, const PolicyOptions& policy,
                                          absl::Span<const int64_t> uses);

// Pure. Returns whether the change needs a new policy object. A new object does not know what the
// old one has learned. A change to kStatic always needs a new object, because its profile may be
// new.
bool ReplacesPolicy(const OffloadChange& change, const PolicyOptions& before,
                    const PolicyOptions& after);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_OFFLOAD_CHANGE_H_
