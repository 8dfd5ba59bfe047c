// AdaptivePolicy: keeps what a NextUsePredictor expects to be needed soonest for the time that it
// occupies a slot, in one pool for all layers; nothing in it is set for a model or a workload.
#ifndef TIDEPOOL_MOE_POLICY_ADAPTIVE_POLICY_H_
#define TIDEPOOL_MOE_POLICY_ADAPTIVE_POLICY_H_

#include <cstdint>
#include <vector>

#include "moe/policy/next_use_predictor.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/worth.h"

namespace tidepool::moe {

// Thread-compatible. A slot has a price per forward, the same for all, and an expert is worth what
// the hit that it is likely to bring saves (its layer's miss_cost) less the price of its slot until
// then, as in Whittle's relaxation of restless bandits. Layers that run sooner are nearer: a
// layer's next forward is counted from the layer at hand. A miss stays where it is worth more than
// the resident that is worth least; otherwise it passes through, so that a long prefill does not
// empty the pool of what decoding needs. Nor does it take from layers to come what it is about to
// need of them: where a layer needs more experts than was expected, so will they, and their
// residents are worth more.
//
// The price is learned by dual ascent: where experts that have to go are worth something, more
// slots are wanted than there are, and it rises; where they are worth less than nothing, it falls.
class AdaptivePolicy final : public PlacementPolicy {
 public:
  explicit AdaptivePolicy(const PoolShape& shape);

  absl::string_view name() const override { return "adaptive"; }
  std::vector<ExpertRef> Fill(const Residency& residency) override;
  void Decide(const LayerNeeds& needs, const Residency& residency,
              std::vector<Swap>* swaps) override;
  std::vector<ExpertRef> Shed(const Residency& residency, int64_t slots) override;

 private:
  // What a layer's worths were when they were computed last.
  struct Bound {
    bool is_known = false;
    float worth = 0;     // of the resident that was worth least, in a forward as wide as expected
    float forwards = 0;  // the most for which a slot would be held
    float price = 0;
    float wait = 0;
  };

  // Until a layer runs, seen from last_layer_, whose routing has just become known; in forwards.
  float WaitFor(int layer) const;

  // worth_ of a layer, seen from last_layer_.
  void AppraiseLayer(const Residency& residency, int layer);

  // No resident of the layer is worth less, however wide this forward is.
  float BoundOf(int layer) const;

  // As FindLeastWorthy, of worths as they are now; layers are appraised only as far as the bounds
  // do not tell that it would be in vain.
  std::vector<Ranked<float>> FindVictims(const Residency& residency, int64_t count);

  // Whether this forward of last_layer_ is not worth learning from.
  bool IsIdle(const Residency& residency);

  // From whom the last Decide has turned away: victims and what passes through.
  void LearnPrice(const Residency& residency, absl::Span<const Swap> swaps);

  NextUsePredictor predictor_;
  const std::vector<float> miss_cost_;  // [layers]
  const float rounding_;                // more than what a bound and its worth lose by it
  float price_;                         // of a slot, in misses of cost 1 per forward
  std::vector<float> worth_;            // [layers, experts]: as of each layer's last appraisal
  std::vector<Bound> bounds_;           // [layers]
  std::vector<float> bounds_now_;       // [layers]
  std::vector<uint8_t> idle_forwards_;  // [layers]: while all experts had slots
  int last_layer_ = 0;
  std::vector<Ranked<float>> missing_;
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_ADAPTIVE_POLICY_H_
