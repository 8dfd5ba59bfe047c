// UsageHistory: what one MoE layer has needed so far, as features from which the next use of each
// of its experts can be predicted (moe/policy/next_use_predictor.h), now or after so many forwards
// without a use.
#ifndef TIDEPOOL_MOE_POLICY_USAGE_HISTORY_H_
#define TIDEPOOL_MOE_POLICY_USAGE_HISTORY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "moe/policy/logistic_model.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/row_history.h"
#include "moe/policy/vec4.h"

namespace tidepool::moe {

// Features, in this order:
//   the log odds of a use, from uses counted with fading weights, one for each half-life;
//   the same from strengths of uses;
//   the log odds of a use that each context table has seen;
//   functions of the age (forwards since the last use), and a constant;
//   the log odds of a use by any row of the last forward (moe/policy/row_history.h).
inline constexpr int kUseRates = 6;
inline constexpr int kStrengthRates = 3;
inline constexpr int kContexts = 8;
inline constexpr int kAgeFeatures = 3;
inline constexpr int kFeatures = kUseRates + kStrengthRates + kContexts + kAgeFeatures + 2;

// Experts are grouped by age, on which it depends what the features mean.
inline constexpr int kAgeGroups = 6;
inline constexpr std::array<int, kAgeGroups> kGroupAges = {0, 1, 2, 4, 10, 30};  // where they begin

// Positions of `experts` rounded up to whole vectors, and one vector more.
constexpr int ExpertStride(int experts) {
  return (experts + kLanes - 1) / kLanes * kLanes + kLanes;
}

// How one forward of a layer used its experts. A gate gives a token its experts in descending order
// of weight: an expert that comes early in it is likely to be used again. [experts]
struct LayerUse {
  explicit LayerUse(int experts)
      : share(ExpertStride(experts)), strength(ExpertStride(experts)), place(experts) {}

  void Set(const LayerNeeds& needs);

  // Both with zeros for the rest of a stride.
  std::vector<float> share;     // of the forward's tokens that want the expert; 0: not used
  std::vector<float> strength;  // the same, place i of top_k of a token counting 1 - i / top_k
  std::vector<int32_t> place;   // the first in any token, as a class: 8 i / top_k; set where used
};

// A number of forwards without a use, and what they do to fading counts.
struct IdleGap {
  explicit IdleGap(int length);

  int forwards = 0;
  std::array<float, kUseRates + kStrengthRates> fade{};   // counts and totals are multiplied by it
  std::array<float, kUseRates + kStrengthRates> grown{};  // and the forwards add this to the totals
};

// Log odds of a use by context, shared by all layers.
class ContextTables {
 public:
  explicit ContextTables(float prior);

  float log_odds(int32_t cell) const { return log_odds_[cell]; }
  const RowTable& rows() const { return rows_; }
  RowTable* mutable_rows() { return &rows_; }
  // Cells of position i: cells[c * stride + i]; was used: used[i] > 0.
  void Learn(absl::Span<const int32_t> cells, int stride, absl::Span<const float> used);

 private:
  struct Cell {
    float used;  // of those seen
    float seen;
    bool touched;
  };
  RowTable rows_;
  std::vector<Cell> cells_;
  std::vector<float> log_odds_;   // [cells]: read far more often than what they come from
  std::vector<int32_t> touched_;  // cells that the samples at hand have changed
};

// Features of experts, in the order of their age groups.
struct LayerFeatures {
  explicit LayerFeatures(int width)
      : stride(width), values(kFeatures * width), cells(kContexts * width) {}

  Samples samples() const { return {values.data(), stride, groups}; }

  int stride = 0;
  std::vector<float> values;                 // [kFeatures, stride]
  std::vector<int32_t> cells;                // [kContexts, stride]
  std::array<int, kAgeGroups + 1> groups{};  // where age groups begin, and the end
};

// Thread-compatible.
class UsageHistory {
 public:
  UsageHistory(int experts, int top_k);

  // One forward.
  void Add(const LayerUse& use);
  // The same forward, of which tables learn what single rows did.
  void AddRows(const LayerRouting& routing, ContextTables* tables) {
    rows_.Add(routing, tables->mutable_rows());
  }

  // Sorts these experts, ascending, by age; it is them that the functions below are about.
  void Sort(absl::Span<const int32_t> experts);
  // Expert at each position.
  const std::vector<int32_t>& order() const { return order_; }

  // The features as they will be after a silence of the layer.
  void Compute(const IdleGap& silence, const ContextTables& tables, LayerFeatures* features) const;

 private:
  struct Expert {
    uint32_t uses = 0;  // bit i: used i forwards ago
    int32_t age = 0;
    int32_t gap = 0;         // forwards between the last two uses
    int32_t gap_before = 0;  // and the two before
    int32_t share = 0;       // class of the share at the last use
    int32_t place = 0;       // at the last use
    int32_t place_before = 0;
  };

  void ComputeRates(const IdleGap& silence, LayerFeatures* features) const;
  // cells[c * stride_]: the context cells of an expert after a silence; its rates are those then.
  void FindCells(const Expert& expert, int32_t silence, float short_rate, float long_rate,
                 int32_t* cells) const;
  void ReadTables(const ContextTables& tables, int count, LayerFeatures* features) const;
  // From ages of `count` experts, which stand where the first of the age's features goes.
  void ComputeAges(int count, LayerFeatures* features) const;
  // From RowHistory::Unused of `count` experts, which stand where the feature goes.
  void ComputeRowOdds(int count, LayerFeatures* features) const;

  const int experts_;
  const int stride_;
  const float prior_;
  const IdleGap one_{1};
  RowHistory rows_;
  std::vector<Expert> state_;                               // [experts]
  std::vector<float> fading_;                               // [rates, stride]: by expert
  std::array<float, kUseRates + kStrengthRates> totals_{};  // of forwards, fading likewise
  std::vector<int32_t> order_;                              // [sorted experts]
  std::vector<Expert> sorted_state_;                        // [sorted experts]: by position
  std::vector<float> sorted_;                               // [rates, stride]: by position
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_USAGE_HISTORY_H_
