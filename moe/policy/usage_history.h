// UsageHistory: records when one MoE layer used each of its experts. It computes the features from
// which the next use is predicted (docs/policy.md).
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

// The features of an expert, in this order. Each one, except for the constant, is the log odds of a
// use according to one source:
//   decaying counts of uses, one for each half-life;
//   decaying counts in which a use is weighted by the rank that the gate gave the expert;
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

// Samples are grouped by age, the number of forward passes since the last use. Each element is the
// lowest age of a group.
inline constexpr std::array<int, 6> kGroupAges = {0, 1, 2, 4, 10, 30};
inline constexpr int kAgeGroups = kGroupAges.size();

// Returns the number of experts, rounded up to whole vectors, plus one more vector.
constexpr int ExpertStride(int experts) {
  return (experts + kLanes - 1) / kLanes * kLanes + kLanes;
}

// Counts that all layers share.
struct HazardTables {
  HazardTables(int experts, int top_k);

  float prior;          // chance of a use, if nothing is known
  FrequencyTable gaps;  // cases are combinations of age and last gap
  FrequencyTable rows;  // cases are those of RowHistory::CaseOf
};

// The rates of HazardTables at one time.
struct HazardRates {
  void Set(const HazardTables& tables);

  float prior = 0;
  std::vector<float> gaps;
  std::vector<float> rows;
};

// Thread-compatible.
class UsageHistory {
 public:
  UsageHistory(int experts, int top_k);

  // Adds one forward pass. Requires: needs.routing.tokens > 0.
  void Add(const LayerNeeds& needs, HazardTables* tables);

 private:
  friend class UsageProjection;

  struct Expert {
    int32_t age;  // number of forward passes since the last use
    int32_t gap;  // number of forward passes between the last two uses
  };

  const int experts_;
  const int stride_;
  RowHistory rows_;
  std::vector<Expert> state_;  // [experts]
  // [2, stride]: the uses in the last forward pass; first as 0 or 1, then weighted by rank
  std::vector<float> weights_;
  std::vector<float> counts_;           // [kRates, stride]: decaying counts
  std::array<float, kRates> totals_{};  // number of forward passes, decaying in the same way
};

// The features of some experts, sorted by age.
struct UsageFeatures {
  explicit UsageFeatures(int experts)
      : stride(ExpertStride(experts)), values(kFeatures * stride), gap_cases(stride) {}

  Samples samples() const { return {values.data(), stride, groups}; }

  int stride;
  std::vector<float> values;       // [kFeatures, stride]
  std::vector<int32_t> gap_cases;  // [stride]: case in HazardTables::gaps
  // first position of each age group, and the end of the last one
  std::array<int, kAgeGroups + 1> groups{};
};

// Thread-compatible. Computes the features of some experts of a layer, now and after forward passes
// without a use.
class UsageProjection {
 public:
  explicit UsageProjection(int experts);

  // Begins with the state after the current forward pass. `experts` are distinct. The history must
  // not change until the next Start.
  void Start(const UsageHistory& history, absl::Span<const int32_t> experts);
  // Adds a forward pass in which none of the experts is used.
  void AddIdleForward();

  // The expert at each position of the features.
  const std::vector<int32_t>& order() const { return order_; }
  void Compute(const HazardRates& rates, UsageFeatures* features) const;

 private:
  // At most this number of experts is computed one by one, with the rates as the elements of
  // vectors. More experts are computed rate by rate, with the experts as the elements. Both ways
  // give the same bits.
  static constexpr size_t kFew = 2;

  bool has_few() const { return order_.size() <= kFew; }
  // Sets the groups, gap_cases and the chances of the gap feature.
  void SetGaps(const HazardRates& rates, UsageFeatures* features) const;
  void ComputeFew(const HazardRates& rates, UsageFeatures* features) const;
  void ComputeMany(const HazardRates& rates, UsageFeatures* features) const;

  const int stride_;
  const UsageHistory* history_ = nullptr;
  int idle_ = 0;  // number of forward passes added by AddIdleForward
  std::vector<int32_t> order_;
  // Counts by position: [kRates, stride], or, if there are few experts, [experts, kFeatures], of
  // which the first kRates are used.
  std::vector<float> counts_;
  std::array<float, kFeatures> totals_{};  // the totals of the rates, followed by ones
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_POLICY_USAGE_HISTORY_H_
