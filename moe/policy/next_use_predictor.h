// NextUsePredictor: how soon each expert will be needed again, learned while it happens.
//
// Each forward of a layer is one sample per expert: was it used? A logistic regression predicts
// that from the layer's history (moe/policy/usage_history.h), all layers together; experts of one
// age may deviate from what the others show. The outlook of an expert comes from running this model
// ahead over imagined forwards without a use (moe/policy/chance_curves.h), until holding a slot for
// it costs more than it brings (moe/policy/outlook_walk.h).
#ifndef TIDEPOOL_MOE_POLICY_NEXT_USE_PREDICTOR_H_
#define TIDEPOOL_MOE_POLICY_NEXT_USE_PREDICTOR_H_

#include <cstdint>
#include <vector>

#include "moe/policy/chance_curves.h"
#include "moe/policy/hold_horizon.h"
#include "moe/policy/logistic_model.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/usage_history.h"

namespace tidepool::moe {

// An expert is used with this chance before its slot is given up, which takes `forwards` of its
// layer, on average, after the next one. It is known of experts that are resident, or were needed
// when their layer ran last: of whom it matters.
struct ReuseForecast {
  std::vector<float> chance;    // [layers, experts]
  std::vector<float> forwards;  // [layers, experts]
};

// Thread-compatible.
class NextUsePredictor {
 public:
  explicit NextUsePredictor(const PoolShape& shape);

  // What a layer needed; the outlook of its residents and of the experts that it needed is then the
  // one from here. slot_price: in hits of this layer per forward.
  void Update(const LayerNeeds& needs, const Residency& residency, float slot_price);

  const ReuseForecast& outlook() const { return outlook_; }

  // How much wider the forward at hand is than was expected, as the last layer shows: the share of
  // the experts which it would have done without that it needs all the same; 0 to 1. All layers of
  // a forward compute the same tokens, so that it holds of those to come, too.
  float surplus() const { return surplus_; }

 private:
  struct Layer {
    Layer(int experts, int top_k);

    UsageHistory history;
    LayerFeatures features;      // from which the next forward was predicted
    std::vector<int32_t> order;  // of the experts in them
    std::vector<float> chances;  // and what was predicted; empty: nothing yet
    ChanceCurves curves;
    std::vector<bool> is_followed;  // [experts]: their curves are those of the last forward
  };

  void SetSurplus(const Layer& layer, size_t needed);
  void Learn(Layer* layer);
  void PredictNext(Layer* layer);
  void SetKept(int index, const Residency& residency, Layer* layer);
  void LookAhead(int index, float slot_price, Layer* layer);
  void Extend(const std::vector<int32_t>& experts, bool all, float slot_price, Layer* layer);
  void Predict(const LayerFeatures& features, std::vector<float>* chances) const;

  const int experts_;
  const int top_k_;
  const int stride_;
  std::vector<int32_t> all_;  // experts of a layer
  std::vector<Layer> layers_;
  ContextTables tables_;
  std::vector<IdleGap> horizons_;
  LogisticModel model_;
  ReuseForecast outlook_;
  float surplus_ = 0;
  int64_t updates_ = 0;
  // Of the update at hand.
  LayerUse use_;
  std::vector<float> outcomes_;  // [experts], by position
  // Experts that are resident or needed, ascending: those that were used now, or whose curves were
  // not kept up, and the others.
  std::vector<int32_t> fresh_;
  std::vector<int32_t> unused_;
  HoldHorizon walk_;
  LayerFeatures ahead_;
  std::vector<float> chances_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_NEXT_USE_PREDICTOR_H_
