// UsageHistory: when one MoE layer used each of its experts, and the features from which the next
// use is predicted (docs/policy.md).
#ifndef TIDEPOOL_MOE_POLICY_USAGE_HISTORY_H_
#define TIDEPOOL_MOE_POLICY_USAGE_HISTORY_H_

#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "moe/policy/frequency_table.h"
#include "moe/policy/logistic_model.h"
#include "moe/policy/placement_policy.h"
#include "moe/policy/row_history.h"
#include "moe/policy/vec4.h"

namespace tidepool::moe {

// Features, in this order. All but the constant are log odds of a use:
//   from decaying counts of uses, one for each half-life;
//   from decaying counts in which a use is weighted by the rank that the gate gave the expert;
//   the empirical hazard at this age (forwards since the last use) after the last gap;
//   the chance that any row of the last forward uses the expert (moe/policy/row_history.h);
//   a constant.
inline constexpr int kUseRates = 6;
inline constexpr int kRankRates = 3;
inline constexpr int kRates = kUseRates + kRankRates;
inline constexpr int kGapFeature = kRates;
inline constexpr int kRowFeature = kRates + 1;
inline constexpr int kConstantFeature = kRates + 2;
inline constexpr int kFeatures = kRates + 3;

// Samples are grouped by age. The first age of each group:
inline constexpr std::array<int, 6> kGroupAges = {0, 1, 2, 4, 10, 30};
inline constexpr int kAgeGroups = kGroupAges.size();

// Experts rounded up to whole vectors, and one vector more.
constexpr int ExpertStride(int experts) {
  return (experts + kLanes - 1) / kLanes * kLanes + kLanes;
}

// Counts of all layers together.
struct HazardTables {
  HazardTables(int experts, int top_k);

  float prior;          // chance of a use
  FrequencyTable gaps;  // by age and last gap
  FrequencyTable rows;  // by RowHistory::CaseOf
};

// Thread-compatible.
class UsageHistory {
 public:
  UsageHistory(int experts, int top_k);

  // Adds one forward. Requires: needs.routing.tokens > 0.
  void Add(const LayerNeeds& needs, HazardTables* tables);

 private:
  friend class UsageProjection;

  struct Expert {
    int32_t age;  // forwards since the last use
    int32_t gap;  // forwards between the last two uses
  };

  const int experts_;
  const int stride_;
  RowHistory rows_;
  std::vector<Expert> state_;  // [experts]
  // [2, stride]: the last forward's uses as 0 or 1, and weighted by rank
  std::vector<float> weights_;
  std::vector<float> counts_;           // [kRates, stride]: decaying
  std::array<float, kRates> totals_{};  // forwards, decaying likewise
};

// Features of some experts, sorted by age.
struct UsageFeatures {
  explicit UsageFeatures(int experts)
      : stride(ExpertStride(experts)), values(kFeatures * stride), gap_cases(stride) {}

  Samples samples() const { return {values.data(), stride, groups}; }

  int stride;
  std::vector<float> values;                 // [kFeatures, stride]
  std::vector<int32_t> gap_cases;            // [stride]: of HazardTables::gaps
  std::array<int, kAgeGroups + 1> groups{};  // first position of each age group, and the end
};

// Thread-compatible. Features of some experts of a layer, now and after forwards without a use.
class UsageProjection {
 public:
  explicit UsageProjection(int experts);

  // Begins at the current forward. `experts` are distinct. The history must not change until the
  // next Start.
  void Start(const UsageHistory& history, absl::Span<const int32_t> experts);
  // Adds a forward without a use.
  void AddIdleForward();

  // The expert at each position.
  const std::vector<int32_t>& order() const { return order_; }
  void Compute(const HazardTables& tables, UsageFeatures* features) const;

 private:
  const int stride_;
  const UsageHistory* history_ = nullptr;
  int idle_ = 0;  // number of forwards that were added
  std::vector<int32_t> order_;
  std::vector<float> counts_;  // [kRates, stride]: by position
  std::array<float, kRates> totals_{};
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_USAGE_HISTORY_H_
