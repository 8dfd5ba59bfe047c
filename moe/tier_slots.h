// TierSlots: the slots of one tier of memory (the host's, or a device's). It records which experts
// have slots, by which policy, and how often each expert was needed. Implementation detail of
// TieredExperts and DeviceExperts, which own the memory itself.
#ifndef TIDEPOOL_MOE_TIER_SLOTS_H_
#define TIDEPOOL_MOE_TIER_SLOTS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "moe/expert_record.h"
#include "moe/offload_change.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"
#include "moe/policy/placement.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// The memory that a tier has now, in buffers of one record.
struct PoolUse {
  int64_t limit = 0;
  int64_t in_use = 0;
  int64_t buffer_bytes = 0;

  // Pool is ExpertPool or DevicePool.
  template <typename Pool>
  static PoolUse Of(const Pool& pool) {
    return {pool.limit(), pool.in_use(), pool.buffer_bytes()};
  }
};

// Engine thread only.
class TierSlots {
 public:
  struct Options {
    int top_k = 0;
    int64_t slots = 0;
    int64_t staging = 0;
    PolicyOptions policy;
    std::vector<int> layer_numbers;  // the model's layer number of each MoE layer
  };

  // Returns INVALID_ARGUMENT if the policy's options are wrong.
  static absl::StatusOr<TierSlots> Create(const ExpertRecords& records, Options options);

  Placement& placement() { return *placement_; }
  const Placement& placement() const { return *placement_; }
  const Options& options() const { return options_; }

  // Calls Placement::Decide, and counts the uses.
  absl::Span<const Lookup> Decide(const LayerRouting& routing);

  // Call SlotsAfter and PolicyAfter (moe/offload_change.h). `committed` is the number of buffers
  // that have memory.
  absl::StatusOr<int64_t> SlotsAfterChange(const OffloadChange& change, int64_t committed,
                                           const ExpertRecords& records) const;
  absl::StatusOr<PolicyOptions> PolicyAfterChange(const OffloadChange& change) const {
    return PolicyAfter(change, options_.policy, uses_);
  }
  // Uses the result of PolicyAfterChange. Returns the experts that a new policy evicts.
  std::vector<ExpertRef> SetPolicy(const OffloadChange& change, PolicyOptions policy);

  OffloadSettings Settings(const PoolUse& pool, Prefetch prefetch) const;
  // `is_resident` gets the number of an expert, counted over all layers.
  ExpertMap Map(absl::FunctionRef<bool(int64_t)> is_resident) const;
  // Sets the members about slots, the policy and the placement.
  void Describe(const PoolUse& pool, Prefetch prefetch, OffloadStats* stats) const;

 private:
  TierSlots(Options options, std::unique_ptr<Placement> placement);

  Options options_;  // `policy` is always the current policy; `slots` is the number at the start
  std::unique_ptr<Placement> placement_;
  std::vector<int64_t> uses_;  // [layers, experts]: number of requests that included the expert
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_TIER_SLOTS_H_
