// ReusePredictor: predicts when each expert is used next. It is a hazard model that is learned
// online (docs/policy.md).
#ifndef TIDEPOOL_MOE_POLICY_REUSE_PREDICTOR_H_
#define TIDEPOOL_MOE_POLICY_REUSE_PREDICTOR_H_

#include <cstdint>
#include <vector>

#include "moe/policy/hold_horizon.h"
#include "moe/policy/logistic_model.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/usage_history.h"

namespace tidepool::moe {

// What is expected if a slot is held for an expert as long as that is worth its price. Valid for
// residents, and for the experts that a layer needed in its latest forward pass.
struct ReuseForecast {
  std::vector<float> chance;  // [layers, experts], and padding: the chance of a use in that time
  // The same shape: for how many forward passes of the expert's layer the slot is expected to be
  // held, that is, until the use or until the slot is given up. The next forward pass is not
  // counted.
  std::vector<float> forwards;
};

// Thread-compatible.
class ReusePredictor {
 public:
  explicit ReusePredictor(const PoolShape& shape);

  // Learns which experts a layer needed. Updates the forecasts of these experts and of the layer's
  // residents. `slot_price` is the price of a slot for one forward pass. Its unit is a hit in this
  // layer.
  void Update(const LayerNeeds& needs, const Residency& residency, float slot_price);

  const ReuseForecast& forecast() const { return forecast_; }

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
  };

  void SetExcessDemand(const Layer& layer, size_t needed);
  void Learn(const LayerNeeds& needs, Layer* layer);
  void UpdateForecast(int index, float slot_price, const Layer& layer);
  void Predict(const UsageFeatures& features, std::vector<float>* chances) const;

  const int experts_;
  const int top_k_;
  std::vector<int32_t> all_;  // the numbers of all experts of a layer
  std::vector<Layer> layers_;
  HazardTables tables_;
  LogisticModel model_;
  ReuseForecast forecast_;
  float excess_demand_ = 0;
  // Scratch memory of Update.
  std::vector<bool> is_used_;    // [experts]
  std::vector<float> outcomes_;  // [experts], in the order of a layer
  std::vector<int32_t> kept_;    // experts that are resident or that the layer needed
  UsageProjection projection_;
  UsageFeatures features_;
  std::vector<float> hazards_;
  HoldHorizon hold_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_REUSE_PREDICTOR_H_
