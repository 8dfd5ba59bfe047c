// Placement: records which experts are in the slots of a pool, and counts hits and misses. A policy
// makes the decisions. The owner of the slots calls Decide once for each layer of a forward pass,
// when the layer's routing is known, and does what the result says:
//
//   ASSIGN_OR_RETURN(auto placement, moe::Placement::Create(shape, {.kind = PolicyKind::kLru}));
//   for (ExpertRef expert : placement->residents()) ...  // read and keep
//   for (const Lookup& lookup : placement->Decide(routing)) {
//     switch (lookup.action) { kHit: run; kInsert: read, run, keep; kPassThrough: read, run, drop }
//   }
//
// moe/replay does the same, but reads no bytes. So it gets the same counts.
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
  kHit,          // the expert was resident when the routing became known
  kInsert,       // a miss that becomes resident, in a free slot or in the slot of a victim
  kPassThrough,  // a miss that is used once and then dropped
};

struct Lookup {
  int32_t expert = 0;
  int32_t tokens = 0;  // number of tokens in this forward pass that need the expert
  LookupAction action = LookupAction::kHit;
  // For kInsert: the expert that loses its slot; not valid if the slot was free. The victim may be
  // an expert that this layer also needs. Its own lookup is then still a kHit.
  ExpertRef victim;
};

// Counts lookups by their result. A lookup is one distinct expert that a layer needed in one
// forward pass.
struct PlacementCounters {
  int64_t hits = 0;
  int64_t promotions = 0;  // misses that became resident
  int64_t pass_throughs = 0;
  int64_t evictions = 0;  // evictions of this layer's experts, by any layer

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
  // Uses a policy of the caller. Requires: shape.Validate() is OK.
  Placement(const PoolShape& shape, std::unique_ptr<PlacementPolicy> policy);

  const PoolShape& shape() const { return residency_.shape(); }
  const Residency& residency() const { return residency_; }
  absl::string_view policy_name() const { return policy_->name(); }

  // All experts with a slot, ordered by layer, then by expert. After construction, these are the
  // experts that the caller must read before the first forward pass.
  std::vector<ExpertRef> residents() const;

  // Returns one lookup for each distinct expert of the routing, in ascending order. It is valid
  // until the next call. The placement assumes that the caller does what the lookups say. Requires:
  // 0 <= layer < layers, and tokens * top_k ids in [0, experts).
  absl::Span<const Lookup> Decide(const LayerRouting& routing);

  // If the expert has a slot, frees the slot, for example after a failed read. Requires: the expert
  // is not pinned.
  void Forget(ExpertRef expert);

  // Pinned experts are never evicted. Each Pin needs its own Unpin. Requires: Pin needs a resident
  // expert, and Unpin a pinned one.
  void Pin(ExpertRef expert) { residency_.Pin(expert); }
  void Unpin(ExpertRef expert) { residency_.Unpin(expert); }

  // Changes the number of slots, and returns the experts that are evicted. Later misses use the new
  // slots. On error, nothing changes. Returns INVALID_ARGUMENT for a number of slots that the shape
  // cannot have, and FAILED_PRECONDITION if the pinned experts need more slots.
  absl::StatusOr<std::vector<ExpertRef>> Resize(int64_t slots);

  // Replaces the policy, and returns the experts that the new policy evicts. The other residents
  // and the counters stay the same. Returns the errors of PolicyOptions::Validate.
  absl::StatusOr<std::vector<ExpertRef>> SetPolicy(const PolicyOptions& options);

  // After this call, a policy with a refresh interval refreshes each layer at the layer's next
  // Decide.
  void RefreshSoon() { policy_->RefreshSoon(); }

  // [layers]: counts since construction.
  absl::Span<const PlacementCounters> counters() const { return counters_; }
  PlacementCounters Total() const;

 private:
  void CountNeeds(const LayerRouting& routing);
  void Apply(int layer);
  std::vector<ExpertRef> RemoveShed(int64_t slots);

  Residency residency_;
  std::unique_ptr<PlacementPolicy> policy_;
  std::vector<PlacementCounters> counters_;
  // The next four are those of the last Decide.
  std::vector<int32_t> tokens_of_;  // [experts]
  std::vector<ExpertNeed> needs_;
  std::vector<Swap> swaps_;
  std::vector<Lookup> lookups_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_PLACEMENT_H_
