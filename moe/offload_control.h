// OffloadControl: lets an operator inspect and change a running engine's expert memory. No change
// affects the model's outputs.
#ifndef TIDEPOOL_MOE_OFFLOAD_CONTROL_H_
#define TIDEPOOL_MOE_OFFLOAD_CONTROL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

enum class Prefetch : uint8_t { kOn, kOff };

// Unset fields do not change.
struct OffloadChange {
  // kStatic without a profile at the start uses the counts since then.
  std::optional<PolicyKind> policy;
  std::optional<int64_t> refresh_interval;  // used by kTide
  // At most one of these two. Bytes of slots and staging records together, or a share of all
  // experts' bytes.
  std::optional<int64_t> expert_memory_bytes;
  std::optional<double> expert_memory_share;
  std::optional<Prefetch> prefetch;
  // Bytes by which the experts' memory may still grow. nullopt: unknown, no limit.
  std::optional<int64_t> available_bytes;
};

// The current settings.
struct OffloadSettings {
  PolicyKind policy = PolicyKind::kAdaptive;
  int64_t refresh_interval = 1;
  Prefetch prefetch = Prefetch::kOn;
  int64_t expert_memory_bytes = 0;  // bytes of the slots and staging records below
  int64_t slots = 0;
  int64_t staging = 0;
  int64_t experts = 0;  // in all layers
  int64_t record_bytes = 0;
};

// Which experts are in memory, and how often each was needed.
struct ExpertMap {
  std::vector<int> layer_numbers;  // the model's layer number of each MoE layer
  int experts = 0;                 // per layer
  std::vector<bool> resident;      // [layers, experts]
  std::vector<int64_t> uses;       // [layers, experts]: number of forward passes that needed it
};

// Engine thread only, between two layers. Change and RefreshSoon only between two forward passes.
class OffloadControl {
 public:
  virtual ~OffloadControl() = default;

  virtual OffloadSettings Settings() const = 0;
  // Applies all of the change, or nothing. Shrinking evicts at once. Growth fills with later
  // misses. Errors name the field, its value and what is accepted: INVALID_ARGUMENT;
  // RESOURCE_EXHAUSTED (grows by more than available_bytes); FAILED_PRECONDITION (kStatic without a
  // profile and without any use); UNAVAILABLE (shrinks, but stuck reads still use the memory).
  virtual absl::Status Change(const OffloadChange& change) = 0;
  // Makes a policy with an interval refresh each layer at its next routing.
  virtual void RefreshSoon() = 0;
  virtual ExpertMap Map() const = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_OFFLOAD_CONTROL_H_
