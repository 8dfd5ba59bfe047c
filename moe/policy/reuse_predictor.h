// ReusePredictor: predicts when each expert is used next. It is a hazard model that is learned
// online (docs/policy.md).
#ifndef TIDEPOOL_MOE_POLICY_REUSE_PREDICTOR_H_
#define TIDEPOOL_MOE_POLICY_REUSE_PREDICTOR_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "moe/policy/hold_horizon.h"
#include "moe/policy/logistic_model.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/usage_history.h"

namespace tidepool::moe {

// The expected use of a slot that is held for an expert as long as this is worth the slot's price.
// Valid for residents, and for the experts that a layer needed in its latest forward pass.
struct ReuseForecast {
  std::vector<float> chance;  // [layers, experts]: the chance of a use in that time
  // The same shape: for how many forward passes of the expert's layer the slot is expected to be
  // held, that is, until the use or until the slot is given up. The next forward pass is not
  // counted.
  std::vector<float> forwards;
  // The same shape, 0 or 1: whether this is a draft, in which the slot is held only for the next
  // forward pass. The finished forecast is worth at least as much, at the price for which the draft
  // was made.
  std::vector<float> is_draft;
};

// Limits that all forecasts of a layer's residents satisfy, both drafts and finished forecasts.
struct ForecastLimits {
  float slot_price;  // a price of a slot
  // at this price, each forecast is worth at least as much as this chance of a use
  float least_chance;
  float max_forwards;  // the greatest possible ReuseForecast::forwards
};

// Thread-compatible.
class ReusePredictor {
 public:
  explicit ReusePredictor(const PoolShape& shape);

  // Learns which experts a layer needed. Drafts the forecasts of these experts and of the layer's
  // residents. `slot_price` is the price of a slot for one forward pass. Its unit is a hit in this
  // layer.
  void Update(const LayerNeeds& needs, const Residency& residency, float slot_price);

  // Finishes forecasts of a layer with what was known at its last Update. Finishing one forecast
  // costs about as much as learning from a layer, and few forecasts affect a decision. So the
  // caller finishes only forecasts that may affect one. Requires: the forecasts are drafts.
  void Finish(int layer, absl::Span<const int32_t> experts);

  const ReuseForecast& forecast() const { return forecast_; }

  const ForecastLimits& limits(int layer) const { return layers_[layer].limits; }

  // Is called instead of Update if nothing is learned from a forward pass of the layer. Then
  // experts that the last Update did not forecast may become resident.
  void Skip(int layer);

  // How many more experts than expected the last layer needed: (needed - expected) / (experts -
  // expected), at least 0. All layers of a forward pass compute the same tokens, so the next layers
  // of the forward pass will also need more.
  float excess_demand() const { return excess_demand_; }

 private:
  struct Layer {
    UsageHistory history;
    // For the next forward pass, [experts]: the order of the experts, their features and the
    // predictions.
    std::vector<int32_t> order;
    UsageFeatures features;
    std::vector<float> chances;  // empty before the layer's first forward pass
    // The forecasts are computed from these and from the history. Updates of other layers do not
    // change them.
    HazardRates rates;
    LogisticWeights weights;
    float slot_price;
    ForecastLimits limits;
  };

  void SetExcessDemand(const Layer& layer, size_t needed);
  void Learn(const LayerNeeds& needs, Layer* layer);
  void Draft(int index, const Residency& residency, float slot_price);

  const int experts_;
  const int top_k_;
  std::vector<int32_t> all_;  // the numbers of all experts of a layer
  HazardTables tables_;
  LogisticModel model_;
  std::vector<Layer> layers_;
  ReuseForecast forecast_;
  float excess_demand_ = 0;
  // Scratch memory of Update.
  std::vector<uint8_t> is_used_;  // [experts]: 0 or 1
  std::vector<float> outcomes_;   // [experts], in the order of a layer
  std::vector<int32_t> lost_;     // experts that lost their slot though their forecast is a draft
  UsageProjection projection_;
  UsageFeatures features_;
  std::vector<float> hazards_;
  HoldHorizon hold_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_REUSE_PREDICTOR_H_
