// AdaptivePolicy: keeps the experts that are most valuable according to a ReusePredictor, in one
// pool for all layers (docs/policy.md).
#ifndef TIDEPOOL_MOE_POLICY_ADAPTIVE_POLICY_H_
#define TIDEPOOL_MOE_POLICY_ADAPTIVE_POLICY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/placement_policy.h"
#include "moe/policy/ranking.h"
#include "moe/policy/reuse_predictor.h"

namespace tidepool::moe {

// Thread-compatible. A slot has a price per forward. The value of an expert is the expected saving
// of its next hit (in its layer's miss_cost) less the price of its slot until then. A miss takes
// the slot of the least valuable resident, or passes through if it is less valuable itself.
class AdaptivePolicy final : public PlacementPolicy {
 public:
  explicit AdaptivePolicy(const PoolShape& shape);

  absl::string_view name() const override { return "adaptive"; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;

 private:
  // True if this forward of last_layer_ is skipped in learning, because all experts have slots.
  bool SkipsLearning(const Residency& residency);

  // Sets values_ of all layers, as of now.
  void ComputeValues(const PoolShape& shape);

  // Moves the price towards the one at which experts that get no slot have a mean value of 0.
  void UpdatePrice(const Residency& residency, absl::Span<const Swap> swaps);

  ReusePredictor predictor_;
  const std::vector<float> miss_cost_;  // [layers]
  float price_;                         // price of a slot for one forward, in misses of cost 1
  std::vector<float> values_;           // [layers, experts], and padding
  std::vector<uint8_t> idle_forwards_;  // [layers]: number of forwards while all experts had slots
  int last_layer_ = 0;                  // the layer whose routing became known last
  std::vector<Ranked<float>> missing_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_ADAPTIVE_POLICY_H_
