// OffloadControl: what an operator sees and changes of experts under a memory budget while they are
// in use. Nothing of it changes a bit of what a model computes.
#ifndef TIDEPOOL_MOE_OFFLOAD_CONTROL_H_
#define TIDEPOOL_MOE_OFFLOAD_CONTROL_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

enum class Prefetch : uint8_t { kOn, kOff };

// What is unset stays as it is.
struct OffloadChange {
  // kStatic without a profile from the start takes what was counted since then.
  std::optional<PolicyKind> policy;
  std::optional<int64_t> refresh_interval;  // of kTide
  // Of slots and staging records together; the share is one of all experts' bytes. At most one of
  // the two.
  std::optional<int64_t> expert_memory_bytes;
  std::optional<double> expert_memory_share;
  std::optional<Prefetch> prefetch;
  // That experts may still take: what growth is held against; none: cannot be told.
  std::optional<int64_t> available_bytes;
};

// What is in force.
struct OffloadSettings {
  PolicyKind policy = PolicyKind::kAdaptive;
  int64_t refresh_interval = 1;
  Prefetch prefetch = Prefetch::kOn;
  int64_t expert_memory_bytes = 0;  // of the slots and staging records below
  int64_t slots = 0;
  int64_t staging = 0;
  int64_t experts = 0;  // of all layers
  int64_t record_bytes = 0;
};

// Who lies in memory, and how often each was needed.
struct ExpertMap {
  std::vector<int> layer_numbers;  // in the model, of each MoE layer
  int experts = 0;                 // of a layer
  std::vector<bool> resident;      // [layers, experts]
  std::vector<int64_t> uses;       // [layers, experts]: forward passes that needed it
};

// Engine thread only, between two layers; Change and RefreshSoon between two forward passes.
class OffloadControl {
 public:
  virtual ~OffloadControl() = default;

  virtual OffloadSettings Settings() const = 0;
  // All of it, or nothing. Shrinking evicts at once; growth fills as misses come. Errors name the
  // field, its value and what is accepted: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (growth past
  // available_bytes), FAILED_PRECONDITION (kStatic where there is neither a profile nor a count),
  // UNAVAILABLE (less memory, and the disk does not end reads that hold some).
  virtual absl::Status Change(const OffloadChange& change) = 0;
  // A policy with an interval refreshes each layer at its next routing.
  virtual void RefreshSoon() = 0;
  virtual ExpertMap Map() const = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_OFFLOAD_CONTROL_H_
