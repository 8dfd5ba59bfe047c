// Residency: which experts are in the slots of a pool. All MoE layers of a model share one pool.
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
  int layers = 0;   // number of MoE layers
  int experts = 0;  // number of experts per layer
  int top_k = 0;
  int64_t slots = 0;
  // [layers]: the cost of a miss in each layer, from MissCosts. The mean is 1. If empty, the cost
  // is 1 in every layer.
  std::vector<float> miss_cost;

  // Limits, because these values may come from untrusted input.
  static constexpr int kMaxLayers = 4096;
  static constexpr int kMaxExperts = 65536;
  static constexpr int64_t kMaxAllExperts = int64_t{1} << 20;

  int64_t all_experts() const { return int64_t{layers} * experts; }
  // Returns INVALID_ARGUMENT if a value is out of range.
  absl::Status Validate() const;
};

// Returns PoolShape::miss_cost for layers whose experts have these sizes. Each miss is one read, so
// its cost is proportional to the number of bytes. Empty if all sizes are equal.
std::vector<float> MissCosts(absl::Span<const int64_t> expert_bytes);

// Thread-compatible.
class Residency {
 public:
  // Creates an empty pool. Requires: shape.Validate() is OK.
  explicit Residency(const PoolShape& shape);

  const PoolShape& shape() const { return shape_; }
  int64_t slots() const { return shape_.slots; }
  int64_t residents() const { return residents_; }
  int64_t free_slots() const { return shape_.slots - residents_; }
  int residents_of(int layer) const { return residents_of_[layer]; }

  // The index of an expert in arrays [layers, experts].
  int64_t IndexOf(ExpertRef ref) const { return int64_t{ref.layer} * shape_.experts + ref.expert; }
  ExpertRef At(int64_t index) const {
    return {static_cast<int32_t>(index / shape_.experts),
            static_cast<int32_t>(index % shape_.experts)};
  }

  bool IsResident(ExpertRef ref) const { return resident_[IndexOf(ref)] != 0; }
  // [layers, experts]: 1 for a resident, otherwise 0.
  const std::vector<int32_t>& resident() const { return resident_; }

  bool IsPinned(ExpertRef ref) const { return pins_[IndexOf(ref)] > 0; }
  int64_t pinned() const { return pinned_; }  // number of pinned experts

  // Gives the expert a free slot. Requires: the expert is not resident, and free_slots() > 0.
  void Insert(ExpertRef ref);
  // Frees the expert's slot. Requires: the expert is resident and not pinned.
  void Remove(ExpertRef ref);
  // Gives the victim's slot to the newcomer. Requires: the victim is resident and not pinned; the
  // newcomer is not resident.
  void Replace(ExpertRef victim, ExpertRef newcomer);
  // Each Pin needs its own Unpin. Requires: Pin needs a resident expert, and Unpin a pinned one.
  void Pin(ExpertRef ref);
  void Unpin(ExpertRef ref);

  // Changes the number of slots. Requires: residents() <= slots.
  void Resize(int64_t slots);

 private:
  PoolShape shape_;
  std::vector<int32_t> resident_;  // [layers, experts]
  std::vector<int32_t> pins_;      // [layers, experts]
  std::vector<int> residents_of_;  // [layers]
  int64_t residents_ = 0;
  int64_t pinned_ = 0;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_RESIDENCY_H_
