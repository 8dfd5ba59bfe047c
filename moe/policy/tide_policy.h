// TidePolicy: the refresh policy of TIDE (arXiv 2605.20179). Other policies are compared with it.
//
// Each layer has B = slots / layers slots, rounded down. It starts with the experts 0 to B - 1. A
// layer is refreshed at each step whose number is a multiple of the interval. The targets of a
// refresh are the B experts that the most tokens of this forward pass need; if two are equal, the
// lower number is preferred. Missing targets replace residents that are not targets, the lowest
// numbers first. Between refreshes, missing experts are used once and dropped.
#ifndef TIDEPOOL_MOE_POLICY_TIDE_POLICY_H_
#define TIDEPOOL_MOE_POLICY_TIDE_POLICY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// Thread-compatible. Pinned experts stay resident. If there are then too few residents to replace,
// the targets that the fewest tokens need are used once and dropped. A layer never takes slots from
// another layer.
class TidePolicy final : public PlacementPolicy {
 public:
  // Requires: refresh_interval > 0.
  TidePolicy(const PoolShape& shape, int64_t refresh_interval)
      : refresh_interval_(refresh_interval), refresh_soon_(shape.layers, false) {}

  absl::string_view name() const override { return "tide"; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  // Evicts from each layer the residents above B, the lowest numbers first. This may not be enough,
  // because a layer may have more than B pinned experts. Then Shed uses a smaller B.
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;
  void RefreshSoon() override;

 private:
  static std::vector<ExpertRef> ShedTo(const Residency& residency, int per_layer);

  const int64_t refresh_interval_;
  std::vector<bool> refresh_soon_;  // [layers]
  // the targets of the last Decide; the expert with the most tokens is first
  std::vector<ExpertNeed> targets_;
  std::vector<bool> is_target_;  // [experts]
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_TIDE_POLICY_H_
