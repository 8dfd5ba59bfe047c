// Placement: which experts are in the slots of a pool, under a policy, with counters. The owner of
// the slots calls Decide once per layer and forward, when the layer's routing is known, and carries
// out the result:
//
//   ASSIGN_OR_RETURN(auto placement, moe::Placement::Create(shape, {.kind = PolicyKind::kLru}));
//   for (ExpertRef expert : placement->residents()) ...  // read and keep
//   for (const Lookup& lookup : placement->Decide(routing)) {
//     switch (lookup.action) { kHit: run; kInsert: read, run, keep; kPassThrough: read, run, drop }
//   }
//
// moe/replay does the same without reading any bytes, so its counts are the same.
#ifndef TIDEPOOL_MOE_POLICY_PLACEMENT_H_
#define TIDEPOOL_MOE_POLICY_PLACEMENT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/residency.h"

namespace tidepool::moe {

enum class LookupAction : uint8_t {
  kHit,          // was resident when the routing became known
  kInsert,       // a miss that stays, in a free slot or in a victim's slot
  kPassThrough,  // a miss that is used once and dropped
};

struct Lookup {
  int32_t expert = 0;
  int32_t tokens = 0;  // number of tokens of this forward that need it
  LookupAction action = LookupAction::kHit;
  // kInsert: the expert that loses its slot. Not valid: the slot was free. The victim may be an
  // expert that this layer also needs. Then its own lookup is still a kHit.
  ExpertRef victim;
};

// Number of lookups by result. A lookup is a distinct expert that a layer needed in a forward.
struct PlacementCounters {
  int64_t hits = 0;
  int64_t promotions = 0;  // misses that stayed
  int64_t pass_throughs = 0;
  int64_t evictions = 0;  // of this layer's experts, whichever layer caused them

  int64_t misses() const { return promotions + pass_throughs; }
  int64_t lookups() const { return hits + misses(); }
  PlacementCounters& operator+=(const PlacementCounters& other);
  bool operator==(const PlacementCounters&) const = default;
};

// Thread-compatible.
class Placement {
 public:
  static absl::StatusOr<std::unique_ptr<Placement>> Create(const PoolShape& shape,
                                                           const PolicyOptions& options);
  // Uses the caller's policy. Requires: shape.Validate() is OK.
  Placement(const PoolShape& shape, std::unique_ptr<PlacementPolicy> policy);

  const PoolShape& shape() const { return residency_.shape(); }
  const Residency& residency() const { return residency_; }
  absl::string_view policy_name() const { return policy_->name(); }

  // All experts with a slot, in order of layer and expert. After construction, these are the
  // experts to read before the first forward.
  std::vector<ExpertRef> residents() const;

  // Returns one lookup per distinct expert of the routing, in ascending order. The result is valid
  // until the next call. The placement assumes that the caller carries it out. Requires: 0 <= layer
  // < layers, and tokens * top_k ids in [0, experts).
  absl::Span<const Lookup> Decide(const LayerRouting& routing);

  // Frees the expert's slot if it has one, for example after a failed read. Its layer may then have
  // fewer residents than the floor. Requires: not pinned.
  void Forget(ExpertRef expert);

  // Pinned experts are never evicted. Each Pin needs its own Unpin. Requires: resident; for Unpin,
  // pinned.
  void Pin(ExpertRef expert) { residency_.Pin(expert); }
  void Unpin(ExpertRef expert) { residency_.Unpin(expert); }

  // Changes the number of slots, and returns the evicted experts. Misses will fill new slots. On
  // error, nothing changes: INVALID_ARGUMENT for a number that the shape cannot have,
  // FAILED_PRECONDITION if the pinned experts and the floors of the layers need more slots.
  absl::StatusOr<std::vector<ExpertRef>> Resize(int64_t slots);

  // Replaces the policy, and returns the experts that the new one evicts. The other residents and
  // the counters stay. INVALID_ARGUMENT as in PolicyOptions::Validate.
  absl::StatusOr<std::vector<ExpertRef>> SetPolicy(const PolicyOptions& options);

  // Makes a policy with a refresh interval refresh each layer at its next Decide.
  void RefreshSoon() { policy_->RefreshSoon(); }

  // Since construction, [layers].
  absl::Span<const PlacementCounters> counters() const { return counters_; }
  PlacementCounters Total() const;

 private:
  void CountNeeds(const LayerRouting& routing);
  void Apply(int layer);
  std::vector<ExpertRef> RemoveShed(int64_t slots);

  Residency residency_;
  std::unique_ptr<PlacementPolicy> policy_;
  std::vector<PlacementCounters> counters_;
  // Of the last Decide.
  std::vector<int32_t> tokens_of_;  // [experts]
  std::vector<ExpertNeed> needs_;
  std::vector<Swap> swaps_;
  std::vector<Lookup> lookups_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_PLACEMENT_H_
