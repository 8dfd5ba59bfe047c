// TidePolicy: the refresh of TIDE (arXiv 2605.20179), the baseline that others are held to.
//
// Each layer has B = slots / layers slots, rounded down; it starts with experts 0 .. B-1. At steps
// that tau divides, a layer's targets are the at most B experts that most tokens of this very
// forward want (ties to the lower id). Targets that are missing come in; as many residents as the
// layer then has above B leave, the lowest ids among those that are no targets first. Between
// refreshes misses pass through.
#ifndef TIDEPOOL_MOE_POLICY_TIDE_POLICY_H_
#define TIDEPOOL_MOE_POLICY_TIDE_POLICY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// Thread-compatible. Pinned experts do not leave; where that leaves too few victims, the targets
// that fewest tokens want pass through. A layer takes slots from no other, and B is never below the
// floor, so that the floor holds.
class TidePolicy final : public PlacementPolicy {
 public:
  // Requires: refresh_interval > 0.
  TidePolicy(const PoolShape& shape, int64_t refresh_interval)
      : refresh_interval_(refresh_interval), refresh_soon_(shape.layers, false) {}

  absl::string_view name() const override { return "tide"; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  // Of each layer, the lowest ids above B. Where pinned experts leave a layer more than that and
  // the pool is too small for it, of all layers those above a share that is smaller, down to the
  // floor.
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;
  void RefreshSoon() override;

 private:
  static std::vector<ExpertRef> ShedTo(const Residency& residency, int of_layer);

  const int64_t refresh_interval_;
  std::vector<bool> refresh_soon_;   // [layers]
  std::vector<ExpertNeed> targets_;  // of the last Decide, most wanted first
  std::vector<bool> is_target_;      // [experts]
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_TIDE_POLICY_H_
