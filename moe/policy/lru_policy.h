// LruPolicy: every miss stays and takes the slot of the expert that was needed longest ago.
#ifndef TIDEPOOL_MOE_POLICY_LRU_POLICY_H_
#define TIDEPOOL_MOE_POLICY_LRU_POLICY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/placement_policy.h"
#include "moe/policy/worth.h"

namespace tidepool::moe {

// Thread-compatible. Experts of one routing were needed at the same time; among equals the lowest
// (layer, expert) leaves first. What the routing at hand needs never leaves: misses for which
// there is then no slot pass through, the highest ids first.
class LruPolicy final : public PlacementPolicy {
 public:
  explicit LruPolicy(const PoolShape& shape) : last_use_(shape.all_experts(), 0) {}

  absl::string_view name() const override { return "lru"; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;

 private:
  int64_t now_ = 0;                // routings so far
  std::vector<int64_t> last_use_;  // [layers, experts]
  std::vector<Ranked<int64_t>> missing_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_LRU_POLICY_H_
