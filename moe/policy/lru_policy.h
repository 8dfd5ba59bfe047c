// LruPolicy: every miss stays and takes the slot of the expert that was needed longest ago.
#ifndef TIDEPOOL_MOE_POLICY_LRU_POLICY_H_
#define TIDEPOOL_MOE_POLICY_LRU_POLICY_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "moe/policy/placement_policy.h"
#include "moe/policy/worth.h"

namespace tidepool::moe {

// Thread-compatible. Experts of one routing were needed at the same time; among equals the lowest
// (layer, expert) leaves first. What the routing at hand needs never leaves: misses for which
// there is then no slot pass through, the highest ids first. Nor does what a layer has from the
// start leave before the layer has run: the first forward comes to it sooner than to any other
// again.
class LruPolicy final : public PlacementPolicy {
 public:
  explicit LruPolicy(const PoolShape& shape)
      : has_run_(shape.layers, false), last_use_(shape.all_experts(), kYetToCome) {}

  absl::string_view name() const override { return "lru"; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;

 private:
  static constexpr int64_t kYetToCome = std::numeric_limits<int64_t>::max();

  int64_t now_ = 0;                // routings so far
  std::vector<bool> has_run_;      // [layers]
  std::vector<int64_t> last_use_;  // [layers, experts]; kYetToCome: the layer has not run
  std::vector<Ranked<int64_t>> missing_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_LRU_POLICY_H_
