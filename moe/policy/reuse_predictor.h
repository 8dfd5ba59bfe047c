// ReusePredictor: a hazard model of each expert's next use, learned online (docs/policy.md).
#ifndef TIDEPOOL_MOE_POLICY_REUSE_PREDICTOR_H_
#define TIDEPOOL_MOE_POLICY_REUSE_PREDICTOR_H_

#include <cstdint>
#include <vector>

#include "moe/policy/hold_horizon.h"
#include "moe/policy/logistic_model.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/usage_history.h"

namespace tidepool::moe {

// The expected result of holding a slot for an expert as long as it pays off. Valid for residents,
// and for the experts that a layer needed when it ran last.
struct ReuseForecast {
  std::vector<float> chance;  // [layers, experts], and padding: chance of a use in that time
  // The same shape: expected number of forwards of its layer, after the next one, until that use or
  // the end.
  std::vector<float> forwards;
};

// Thread-compatible.
class ReusePredictor {
 public:
  explicit ReusePredictor(const PoolShape& shape);

  // Learns which experts a layer needed. Updates the forecast of these and of its residents.
  // `slot_price` is the price of a slot for one forward, in hits of this layer.
  void Update(const LayerNeeds& needs, const Residency& residency, float slot_price);

  const ReuseForecast& forecast() const { return forecast_; }

  // Whether the last layer needed more experts than expected: (needed - expected) / (experts -
  // expected), at least 0. All layers of a forward compute the same tokens, so the next layers of
  // the forward will need more, too.
  float excess_demand() const { return excess_demand_; }

 private:
  struct Layer {
    UsageHistory history;
    // The samples of the next forward, [experts]: the order of experts, features and prediction.
    std::vector<int32_t> order;
    UsageFeatures features;
    std::vector<float> chances;  // empty before the first forward
  };

  void SetExcessDemand(const Layer& layer, size_t needed);
  void Learn(const LayerNeeds& needs, Layer* layer);
  void UpdateForecast(int index, float slot_price, const Layer& layer);
  void Predict(const UsageFeatures& features, std::vector<float>* chances) const;

  const int experts_;
  const int top_k_;
  std::vector<int32_t> all_;  // experts of a layer
  std::vector<Layer> layers_;
  HazardTables tables_;
  LogisticModel model_;
  ReuseForecast forecast_;
  float excess_demand_ = 0;
  // Scratch of Update.
  std::vector<bool> is_used_;    // [experts]
  std::vector<float> outcomes_;  // [experts], in a layer's order
  std::vector<int32_t> kept_;    // experts that are resident or needed
  UsageProjection projection_;
  UsageFeatures features_;
  std::vector<float> hazards_;
  HoldHorizon hold_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_REUSE_PREDICTOR_H_
