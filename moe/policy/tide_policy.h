// TidePolicy: the refresh of TIDE (arXiv 2605.20179), the baseline for other policies.
//
// Each layer has B = slots / layers slots, rounded down. It starts with experts 0 to B - 1. It
// refreshes at steps that are a multiple of the interval: the targets are the B experts that most
// tokens of this forward need (ties go to the lower number). Missing targets replace residents that
// are not targets, the lowest numbers first. Between refreshes, misses pass through.
#ifndef TIDEPOOL_MOE_POLICY_TIDE_POLICY_H_
#define TIDEPOOL_MOE_POLICY_TIDE_POLICY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// Thread-compatible. Pinned experts stay. If there are then too few victims, the targets that the
// fewest tokens need pass through. A layer never takes slots from another layer, and B is at least
// the floor, so no layer falls below the floor.
class TidePolicy final : public PlacementPolicy {
 public:
  // Requires: refresh_interval > 0.
  TidePolicy(const PoolShape& shape, int64_t refresh_interval)
      : refresh_interval_(refresh_interval), refresh_soon_(shape.layers, false) {}

  absl::string_view name() const override { return "tide"; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  // Evicts from each layer the residents in excess of B, the lowest numbers first. If that is not
  // enough, because pinned experts fill more than B slots of a layer, the same with a smaller B,
  // but not less than the floor.
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;
  void RefreshSoon() override;

 private:
  static std::vector<ExpertRef> ShedTo(const Residency& residency, int per_layer);

  const int64_t refresh_interval_;
  std::vector<bool> refresh_soon_;   // [layers]
  std::vector<ExpertNeed> targets_;  // of the last Decide, most tokens first
  std::vector<bool> is_target_;      // [experts]
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_TIDE_POLICY_H_
