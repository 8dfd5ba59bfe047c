// Placement: one pool of expert slots under a policy, with its counters. Who keeps a pool asks it
// once per layer and forward, as soon as the layer's routing is known, and does what it answers:
//
//   ASSIGN_OR_RETURN(auto placement, moe::Placement::Create(shape, {.kind = PolicyKind::kLru}));
//   for (ExpertRef expert : placement->residents()) ...  // read it and keep it
//   for (const Lookup& lookup : placement->Decide(routing)) {
//     switch (lookup.action) { ... kHit: run; kInsert: read, run, keep; kPassThrough: read, run,
//                              forget }
//   }
//
// The simulator does the same without moving a byte, so that both count alike.
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
  kInsert,       // a miss that stays, in a free slot or in a victim's
  kPassThrough,  // a miss that is used and forgotten
};

struct Lookup {
  int32_t expert = 0;
  int32_t tokens = 0;  // of this forward that want it
  LookupAction action = LookupAction::kHit;
  // kInsert: who lay in the slot, no longer resident; not valid: the slot was free. May be an
  // expert of this layer that this forward needs: its own Lookup is a kHit all the same.
  ExpertRef victim;
};

// Distinct (layer, expert) that forwards needed, by what came of them.
struct PlacementCounters {
  int64_t hits = 0;
  int64_t promotions = 0;  // misses that stayed
  int64_t pass_throughs = 0;
  int64_t evictions = 0;  // of this layer's experts, whoever caused them

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
  // With a policy of the caller's. Requires: shape.Validate() is OK.
  Placement(const PoolShape& shape, std::unique_ptr<PlacementPolicy> policy);

  const PoolShape& shape() const { return residency_.shape(); }
  const Residency& residency() const { return residency_; }
  absl::string_view policy_name() const { return policy_->name(); }

  // Everyone with a slot, by layer and expert; after construction, what to read first.
  std::vector<ExpertRef> residents() const;

  // One lookup per distinct expert of the routing, ascending; valid until the next call. From here
  // on the pool is as though all were done. Requires: 0 <= layer < layers, ids in [0, experts),
  // tokens * top_k of them.
  absl::Span<const Lookup> Decide(const LayerRouting& routing);

  // What could not be brought (a failed read) or must go: its slot is free again, if it had one,
  // though its layer may have one less than the floor then. Requires: not pinned.
  void Forget(ExpertRef expert);

  // Pinned experts are never victims. Pins add up. Requires: resident; for Unpin, pinned.
  void Pin(ExpertRef expert) { residency_.Pin(expert); }
  void Unpin(ExpertRef expert) { residency_.Unpin(expert); }

  // More or fewer slots; new ones fill as misses come. Returns who is evicted. FAILED_PRECONDITION
  // while more experts are pinned, beside the floor of other layers, than fit; INVALID_ARGUMENT for
  // a count that the shape cannot have; nothing has changed then.
  absl::StatusOr<std::vector<ExpertRef>> Resize(int64_t slots);

  // Another policy takes over what is resident but for those that it evicts, who are returned.
  // Counters go on. INVALID_ARGUMENT as Validate.
  absl::StatusOr<std::vector<ExpertRef>> SetPolicy(const PolicyOptions& options);

  // Admin.RefreshExperts: a policy with an interval refreshes each layer at its next Decide.
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
