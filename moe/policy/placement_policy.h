// PlacementPolicy: decides which experts of all MoE layers are in the slots of one pool.
//
// A policy has no clock, lock or I/O, and does not see the model's weights. Its decisions depend
// only on its options and on the sequence of calls. A running engine and moe/replay use policies
// through the same Placement, so they get the same counts.
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

// The choice of one MoE layer's gate in one forward. Borrowed memory.
struct LayerRouting {
  int64_t step = 0;  // number of the forward, the same for all its layers
  int layer = 0;     // number of the MoE layer, from 0
  int64_t tokens = 0;
  // [tokens, top_k]: distinct within a token, and in descending order of weight. A trace may have
  // another order; then policies predict less well.
  absl::Span<const int32_t> ids;
  absl::Span<const float> weights;     // [tokens, top_k], or empty
  absl::Span<const Phase> phases;      // [tokens], or one entry for all; empty: decode
  absl::Span<const int64_t> requests;  // the tokens' sequences, as numbers; like `phases`
};

// One lookup: a distinct expert that a layer needs.
struct ExpertNeed {
  int32_t expert = 0;
  int32_t tokens = 0;  // number of tokens that need it
};

struct LayerNeeds {
  const LayerRouting& routing;
  absl::Span<const ExpertNeed> experts;  // ascending
};

// A missing expert of the current layer that will stay.
struct Swap {
  int32_t expert = 0;
  ExpertRef victim;  // loses its slot to the expert; not valid: the expert takes a free slot
};

// Thread-compatible.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;

  virtual absl::string_view name() const = 0;

  // Returns the residents before the first forward: distinct, at most slots().
  virtual std::vector<ExpertRef> Fill(const Residency& residency) = 0;

  // Called once per layer and forward, when the layer's routing is known. Appends the missing
  // experts that stay to `swaps`, which is empty. Other misses pass through. The result must
  // satisfy: experts are distinct, needed and not resident; victims are distinct, resident and not
  // pinned; it uses at most the free slots; no layer falls below the shape's floor. A victim may be
  // an expert that this layer needs. It runs before its slot is reused.
  virtual void Decide(const LayerNeeds& needs, const Residency& residency,
                      std::vector<Swap>* swaps) = 0;

  // Returns the experts to evict so that at most `slots` remain, divided among the layers as this
  // policy does it. They are distinct, resident and not pinned, and no layer falls below the
  // shape's floor. Called before the pool is resized, and when this policy replaces another.
  // Requires: slots >= residency.least_residents(), and slots >= floor * layers.
  virtual std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) = 0;

  // Makes each layer refresh at its next Decide, if the policy has a refresh interval.
  virtual void RefreshSoon() {}
};

enum class PolicyKind : uint8_t { kAdaptive, kTide, kLru, kStatic };

struct PolicyOptions {
  PolicyKind kind = PolicyKind::kAdaptive;
  // Used by kTide: layers refresh at steps that are a multiple of this.
  int64_t refresh_interval = 1;
  // Used by kStatic: uses of each expert, [layers, experts]. Empty: all the same.
  std::vector<int64_t> profile;

  absl::Status Validate(const PoolShape& shape) const;
};

// Makes the policies that do not know the future.
absl::StatusOr<std::unique_ptr<PlacementPolicy>> MakePolicy(const PolicyOptions& options,
                                                            const PoolShape& shape);

// "adaptive", "tide", "lru", "static".
absl::string_view PolicyName(PolicyKind kind);
absl::StatusOr<PolicyKind> ParsePolicyKind(absl::string_view name);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_PLACEMENT_POLICY_H_
