// PlacementPolicy: decides which experts of all MoE layers are in the slots of one pool.
//
// A policy uses no clock, lock or I/O, and does not see the model's weights. Its decisions depend
// only on its options and on the sequence of calls. Both a running engine and moe/replay use
// policies through Placement, so they get the same counts.
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

// Whether the CPU may compute experts of a layer while a device computes others.
enum class HostLane : uint8_t { kOff, kOn };

// What the gate of one MoE layer chose in one forward pass. Does not own the memory.
struct LayerRouting {
  int64_t step = 0;  // number of the forward pass, which is the same for all its layers
  int layer = 0;     // number of the MoE layer, from 0
  int64_t tokens = 0;
  // [tokens, top_k]: distinct for each token, and in descending order of weight. A trace may have
  // them in another order. Policies then predict less well. kNoExpert replaces a choice that a tier
  // above has served: this pool does not see the choice. It may occur at any positions.
  absl::Span<const int32_t> ids;
  absl::Span<const float> weights;  // [tokens, top_k], or empty
  absl::Span<const Phase> phases;   // [tokens], or one value for all tokens; empty means decode
  // number of the sequence of each token; same size as `phases`
  absl::Span<const int64_t> requests;
  HostLane host_lane = HostLane::kOff;  // policies ignore it

  static constexpr int32_t kNoExpert = -1;
};

// One distinct expert that a layer needs.
struct ExpertNeed {
  int32_t expert = 0;
  int32_t tokens = 0;  // number of tokens that need it
};

struct LayerNeeds {
  const LayerRouting& routing;
  absl::Span<const ExpertNeed> experts;  // in ascending order
};

// A missing expert of the current layer that becomes resident.
struct Swap {
  int32_t expert = 0;
  ExpertRef victim;  // loses its slot to the expert; not valid if the expert takes a free slot
};

// Thread-compatible.
class PlacementPolicy {
 public:
  virtual ~PlacementPolicy() = default;

  virtual absl::string_view name() const = 0;

  // Returns the experts that are resident before the first forward pass. They are distinct, and
  // there are at most slots().
  virtual std::vector<ExpertRef> Fill(const Residency& residency) = 0;

  // Called once for each layer of a forward pass, when the layer's routing is known. Appends to
  // `swaps`, which is empty, the missing experts that become resident. Other misses are used once
  // and dropped. The result must satisfy these conditions: experts are distinct, needed and not
  // resident; victims are distinct, resident and not pinned; the swaps use at most free_slots()
  // free slots. A victim may be an expert that this layer needs. Then the victim is computed before
  // its slot is used again.
  virtual void Decide(const LayerNeeds& needs, const Residency& residency,
                      std::vector<Swap>* swaps) = 0;

  // Returns the experts to evict so that at most `slots` residents are left. The policy decides how
  // they are divided among the layers. They are distinct, resident and not pinned. Called
  // before the pool is resized, and when this policy replaces another one. Requires: slots >=
  // residency.pinned().
  virtual std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) = 0;

  // After this call, a policy with a refresh interval refreshes each layer at the layer's next
  // Decide.
  virtual void RefreshSoon() {}
};

enum class PolicyKind : uint8_t { kAdaptive, kTide, kLru, kStatic };

struct PolicyOptions {
  PolicyKind kind = PolicyKind::kAdaptive;
  // Used by kTide: layers are refreshed at steps whose number is a multiple of this.
  int64_t refresh_interval = 1;
  // Used by kStatic: the number of uses of each expert, [layers, experts]. If empty, all are equal.
  std::vector<int64_t> profile;

  absl::Status Validate(const PoolShape& shape) const;
};

// Creates a policy. Policies that know the future are in moe/replay/oracles.h.
absl::StatusOr<std::unique_ptr<PlacementPolicy>> MakePolicy(const PolicyOptions& options,
                                                            const PoolShape& shape);

// Converts between kinds and names: "adaptive", "tide", "lru" and "static".
absl::string_view PolicyName(PolicyKind kind);
absl::StatusOr<PolicyKind> ParsePolicyKind(absl::string_view name);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_PLACEMENT_POLICY_H_
