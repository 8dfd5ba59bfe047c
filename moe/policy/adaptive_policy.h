// AdaptivePolicy: keeps the experts that are the most valuable according to a ReusePredictor. All
// layers share one pool of slots (docs/policy.md).
#ifndef TIDEPOOL_MOE_POLICY_ADAPTIVE_POLICY_H_
#define TIDEPOOL_MOE_POLICY_ADAPTIVE_POLICY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/placement_policy.h"
#include "moe/policy/ranking.h"
#include "moe/policy/reuse_predictor.h"

namespace tidepool::moe {

// Thread-compatible. A slot has a price for each forward pass. An expert's value is what its next
// hit is expected to save (its layer's miss_cost), minus the price of its slot until then. A
// missing expert takes the slot of the resident with the lowest value. But if the missing expert's
// own value is lower, it is used once and dropped.
class AdaptivePolicy final : public PlacementPolicy {
 public:
  explicit AdaptivePolicy(const PoolShape& shape);

  absl::string_view name() const override { return "adaptive"; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;

 private:
  // Returns whether learning is skipped for this forward pass of last_layer_, because all experts
  // have slots.
  bool SkipsLearning(const Residency& residency);

  // The inputs of an expert's value, besides its forecast.
  struct Terms {
    float cost;    // cost of a miss
    float rent;    // price of the slot until the layer runs next
    float excess;  // how far the value moves toward that of a certain use: 0 to 1
  };
  Terms TermsOf(const PoolShape& shape, int layer) const;
  // `chance` and `forwards` are those of a ReuseForecast. T is float or Vec4.
  template <typename T>
  T Value(const Terms& terms, T chance, T forwards) const;

  // Sets values_ of a layer. An expert with a draft gets the least value that the finished forecast
  // may have.
  void ComputeValues(const PoolShape& shape, int layer);
  // Finishes the drafts of the layer's residents that may be worth at most `value`. Sets values_ of
  // the layer.
  void FinishBelow(const Residency& residency, int layer, float value);
  // Returns the maximum by which a finished forecast of the layer may be worth less than its draft.
  float MaxLoss(int layer) const;
  // See FindLeastValuable and SwapByValue.
  std::vector<Ranked<float>> FindVictims(const Residency& residency, int64_t count, float value);

  // Changes the price of a slot. The aim is a mean value of 0 for the experts that get no slot.
  void UpdatePrice(const Residency& residency, absl::Span<const Swap> swaps);

  ReusePredictor predictor_;
  const std::vector<float> miss_cost_;  // [layers]
  float price_;                // price of a slot for one forward pass; the unit is a miss of cost 1
  std::vector<float> values_;  // [layers, experts]
  // [layers]: number of forward passes in which all experts had slots
  std::vector<uint8_t> idle_forwards_;
  int last_layer_ = 0;     // the layer whose routing became known most recently
  float usual_value_ = 0;  // about the value of the most valuable victim of the last decision
  // Scratch memory of Decide.
  std::vector<Ranked<float>> missing_;
  std::vector<int32_t> drafts_;
  std::vector<Ranked<float>> visits_;  // layers; the values are the least that they may have
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_ADAPTIVE_POLICY_H_
