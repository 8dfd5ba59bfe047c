// PlacementPolicy: which experts of which MoE layers lie in the slots of one pool.
//
// A policy is pure: no clock, lock or I/O, and nothing of the model's weights; what it decides
// follows from its options and from the calls made to it, in order. So the simulator (moe/replay)
// and a running engine, which drive policies through the same Placement, come to the same counts.
#ifndef TIDEPOOL_MOE_POLICY_PLACEMENT_POLICY_H_
#define TIDEPOOL_MOE_POLICY_PLACEMENT_POLICY_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "moe/policy/residency.h"

namespace tidepool::moe {

enum class Phase : uint8_t { kPrefill, kDecode };

// What the gate of one MoE layer chose in one forward. Borrowed memory.
struct LayerRouting {
  int64_t step = 0;  // of the forward; the same for all its layers
  int layer = 0;     // counts MoE layers
  int64_t tokens = 0;
  // [tokens, top_k]: distinct within a token, and in descending order of weight as a gate gives
  // them; a trace may have them in another, which costs no more than what policies learn from it.
  absl::Span<const int32_t> ids;
  absl::Span<const float> weights;     // [tokens, top_k], or empty
  absl::Span<const Phase> phases;      // [tokens], or one entry for all; empty: decode
  absl::Span<const int64_t> requests;  // numbers of the tokens' sequences, like `phases`
};

// One lookup: a distinct expert that a layer needs.
struct ExpertNeed {
  int32_t expert = 0;
  int32_t tokens = 0;  // how many want it
};

struct LayerNeeds {
  const LayerRouting& routing;
  absl::Span<const ExpertNeed> experts;  // ascending
};

// A missing expert of the layer at hand that is to stay.
struct Swap {
  int32_t expert = 0;
  ExpertRef victim;  // whose slot it takes; not valid: a free slot
};

// Thread-compatible.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;

  virtual absl::string_view name() const = 0;

  // Who lies in the empty pool before the first forward: distinct, at most slots().
  virtual std::vector<ExpertRef> Fill(const Residency& residency) = 0;

  // Called when a layer's routing has become known, once per layer and forward. Appends to `swaps`
  // (empty) the missing experts to keep; misses that it leaves out pass through. Requires of them:
  // experts distinct, needed and not resident; victims distinct, resident and not pinned; no more
  // free slots than there are; no layer falls below the shape's floor by them. A victim may be one
  // that this layer needs; it runs before its slot is taken.
  virtual void Decide(const LayerNeeds& needs, const Residency& residency,
                      std::vector<Swap>* swaps) = 0;

  // Who has to leave so that at most `slots` experts, in the way this policy shares slots out,
  // remain: distinct, resident and not pinned, and no layer falls below the shape's floor by them.
  // Called before the pool is resized and when this policy takes over from another. Requires: slots
  // of at least residency.least_residents(), and at least as many as the floor is in all layers.
  virtual std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) = 0;

  // Acts at each layer's next Decide as though its refresh were due.
  virtual void RefreshSoon() {}
};

enum class PolicyKind : uint8_t { kAdaptive, kTide, kLru, kStatic };

struct PolicyOptions {
  PolicyKind kind = PolicyKind::kAdaptive;
  // TIDE's tau: layers refresh at steps that it divides.
  int64_t refresh_interval = 1;
  // Of kStatic: how often each expert was used, [layers, experts]; empty: nothing is known.
  std::vector<int64_t> profile;

  absl::Status Validate(const PoolShape& shape) const;
};

// The policies that know nothing of the future.
absl::StatusOr<std::unique_ptr<PlacementPolicy>> MakePolicy(const PolicyOptions& options,
                                                            const PoolShape& shape);

// "adaptive", "tide", "lru", "static".
absl::string_view PolicyName(PolicyKind kind);
absl::StatusOr<PolicyKind> ParsePolicyKind(absl::string_view name);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_PLACEMENT_POLICY_H_
