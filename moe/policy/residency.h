// Residency: which experts are in the slots of a pool. One pool serves all MoE layers of a model.
#ifndef TIDEPOOL_MOE_POLICY_RESIDENCY_H_
#define TIDEPOOL_MOE_POLICY_RESIDENCY_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace tidepool::moe {

struct ExpertRef {
  int32_t layer = -1;
  int32_t expert = -1;

  bool valid() const { return layer >= 0; }
  bool operator==(const ExpertRef&) const = default;
  auto operator<=>(const ExpertRef&) const = default;
};

struct PoolShape {
  int layers = 0;   // MoE layers
  int experts = 0;  // per layer
  int top_k = 0;
  int64_t slots = 0;
  // Policies evict no expert of a layer that has this number of residents or fewer. (A layer has
  // fewer if an expert could not be read, see Placement::Forget.) floor * layers <= slots.
  int floor = 0;
  // [layers]: the cost of a miss, 1 on average, computed by MissCosts. Empty: 1 in every layer.
  std::vector<float> miss_cost;

  // Limits for untrusted input.
  static constexpr int kMaxLayers = 4096;
  static constexpr int kMaxExperts = 65536;
  static constexpr int64_t kMaxAllExperts = int64_t{1} << 20;

  int64_t all_experts() const { return int64_t{layers} * experts; }
  // INVALID_ARGUMENT if a value is out of range.
  absl::Status Validate() const;
};

// Returns PoolShape::miss_cost for layers whose experts have these sizes. A miss is one read,
// whether it stays or passes through, so its cost is proportional to its bytes. Empty if all sizes
// are equal.
std::vector<float> MissCosts(absl::Span<const int64_t> expert_bytes);

// Thread-compatible.
class Residency {
 public:
  // An empty pool. Requires: shape.Validate() is OK.
  explicit Residency(const PoolShape& shape);

  const PoolShape& shape() const { return shape_; }
  int64_t slots() const { return shape_.slots; }
  int64_t residents() const { return residents_; }
  int64_t free_slots() const { return shape_.slots - residents_; }
  int residents_of(int layer) const { return residents_of_[layer]; }

  // Index of an expert in arrays [layers, experts].
  int64_t IndexOf(ExpertRef ref) const { return int64_t{ref.layer} * shape_.experts + ref.expert; }
  ExpertRef At(int64_t index) const {
    return {static_cast<int32_t>(index / shape_.experts),
            static_cast<int32_t>(index % shape_.experts)};
  }

  bool IsResident(ExpertRef ref) const { return resident_[IndexOf(ref)] != 0; }
  // [layers, experts]: 1 for a resident, else 0.
  const std::vector<int32_t>& resident() const { return resident_; }

  bool IsPinned(ExpertRef ref) const { return pins_[IndexOf(ref)] > 0; }
  // Minimum number of residents: those that are pinned or needed for the floor of their layer.
  int64_t least_residents() const;

  // Uses a free slot. Requires: not resident, free_slots() > 0.
  void Insert(ExpertRef ref);
  // Frees its slot. Requires: resident, not pinned.
  void Remove(ExpertRef ref);
  // The newcomer takes the victim's slot. Requires: victim resident, not pinned; newcomer not
  // resident.
  void Replace(ExpertRef victim, ExpertRef newcomer);
  // Each Pin needs its own Unpin. Requires: resident; for Unpin, pinned.
  void Pin(ExpertRef ref);
  void Unpin(ExpertRef ref);

  // Requires: residents() <= slots.
  void Resize(int64_t slots);

 private:
  PoolShape shape_;
  std::vector<int32_t> resident_;  // [layers, experts]
  std::vector<int32_t> pins_;      // [layers, experts]
  std::vector<int> residents_of_;  // [layers]
  std::vector<int> pinned_of_;     // [layers]: number of pinned experts
  int64_t residents_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_RESIDENCY_H_
