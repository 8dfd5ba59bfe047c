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

// A change of the settings. Unset fields stay the same.
struct OffloadChange {
  // If kStatic had no profile at the start, it uses the counts since the start.
  std::optional<PolicyKind> policy;
  std::optional<int64_t> refresh_interval;  // only used by kTide
  // At most one of the next two is set. The memory is that of slots and staging records together,
  // in bytes or as a share of all experts' bytes.
  std::optional<int64_t> expert_memory_bytes;
  std::optional<double> expert_memory_share;
  std::optional<Prefetch> prefetch;
  // Bytes that the system can still provide for experts. nullopt: unknown, so growth is not
  // limited.
  std::optional<int64_t> available_bytes;
};

// The current settings of offloading.
struct OffloadSettings {
  PolicyKind policy = PolicyKind::kAdaptive;
  int64_t refresh_interval = 1;
  Prefetch prefetch = Prefetch::kOn;
  int64_t expert_memory_bytes = 0;  // bytes of all slots and staging records together
  int64_t slots = 0;
  int64_t staging = 0;
  int64_t experts = 0;  // number of experts in all layers
  int64_t record_bytes = 0;
};

// Which experts are in memory, and in how many forward passes each was needed.
struct ExpertMap {
  std::vector<int> layer_numbers;  // the model's layer number of each MoE layer
  int experts = 0;                 // number of experts per layer
  std::vector<bool> resident;      // [layers, experts]
  std::vector<int64_t> uses;  // [layers, experts]: number of forward passes that needed the expert
};

// Engine thread only, between two layers. Change and RefreshSoon may only be called between two
// forward passes.
class OffloadControl {
 public:
  virtual ~OffloadControl() = default;

  virtual OffloadSettings Settings() const = 0;
  // Applies all fields of the change, or none. If the memory shrinks, experts are evicted at once.
  // If it grows, later misses use the new slots. Errors name the field, its value and the accepted
  // values. INVALID_ARGUMENT: a value is wrong. RESOURCE_EXHAUSTED: the memory would grow by more
  // than available_bytes. FAILED_PRECONDITION: kStatic has no profile, and no expert was used yet.
  // UNAVAILABLE: the memory cannot shrink, because reads that do not end still use it.
  virtual absl::Status Change(const OffloadChange& change) = 0;
  // After this call, a policy with a refresh interval refreshes each layer at the layer's next
  // routing.
  virtual void RefreshSoon() = 0;
  virtual ExpertMap Map() const = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_OFFLOAD_CONTROL_H_
