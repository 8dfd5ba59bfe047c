// LruPolicy: gives the slot of the least recently used expert to each missing expert.
#ifndef TIDEPOOL_MOE_POLICY_LRU_POLICY_H_
#define TIDEPOOL_MOE_POLICY_LRU_POLICY_H_

#include <cstdint>
#include <limits>
#include <vector>

#include "moe/policy/placement_policy.h"
#include "moe/policy/ranking.h"

namespace tidepool::moe {

// Thread-compatible. All experts of one routing have the same time of use. Among experts with equal
// times, the lowest (layer, expert) is evicted first. Experts that the current routing needs are
// never evicted. If there are not enough slots for the misses of a layer, those with the highest
// expert numbers are used once and dropped. The initial residents of a layer stay until the layer
// has run for the first time, because it will run earlier than any layer that has already run.
class LruPolicy final : public PlacementPolicy {
 public:
  explicit LruPolicy(const PoolShape& shape)
      : has_run_(shape.layers, false), last_use_(shape.all_experts(), kNotRun) {}

  absl::string_view name() const override { return "lru"; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;

 private:
  static constexpr int64_t kNotRun = std::numeric_limits<int64_t>::max();

  int64_t now_ = 0;                // number of routings so far
  std::vector<bool> has_run_;      // [layers]
  std::vector<int64_t> last_use_;  // [layers, experts]; kNotRun if the layer has not run yet
  std::vector<Ranked<int64_t>> missing_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_LRU_POLICY_H_
