#include "moe/policy/usage_history.h"

#include <algorithm>
#include <cmath>

namespace tidepool::moe {
namespace {

// Number of forward passes after which a count is halved; 0: never.
constexpr float kHalfLives[kRates] = {1, 3, 9, 27, 81, 0, 2, 10, 50};
// The weight of each rate's prior, as a number of forward passes.
constexpr float kPriorForwards[kFeatures] = {1, 2, 4, 6, 6, 6, 2, 4, 6};
constexpr float kMinOdds = 5e-4f;
constexpr float kMaxOdds = 1e3f;
constexpr float kLn2 = 0.693147181f;

constexpr int32_t kNeverUsed = 1000;
constexpr int kGapAges = 32;  // the last age also counts all higher ages
constexpr int kGaps = 33;     // the last gap also counts all longer gaps

// Returns the factors by which counts decay in one forward pass. The factors of the features that
// are not counts are 0.
const std::array<float, kFeatures>& Decays() {
  static const auto kDecays = [] {
    std::array<float, kFeatures> decays{};
    for (int rate = 0; rate < kRates; ++rate) {
      decays[rate] = kHalfLives[rate] > 0 ? std::exp2(-1 / kHalfLives[rate]) : 1;
    }
    return decays;
  }();
  return kDecays;
}

// Returns the log odds of a use, if there were `uses` of them in `total` forward passes.
inline Vec4 LogOdds(Vec4 uses, Vec4 total) {
  const Vec4 odds = uses / Max4(total - uses, Vec4{} + 1e-6f);
  return Log4(Clamp4(odds, kMinOdds, kMaxOdds)) * kLn2;
}

}  // namespace

HazardTables::HazardTables(int experts, int top_k)
    : prior(static_cast<float>(top_k) / static_cast<float>(experts)),
      gaps(kGapAges * kGaps, prior),
      rows(RowHistory::kCases, prior) {}

void HazardRates::Set(const HazardTables& tables) {
  prior = tables.prior;
  gaps = tables.gaps.rates();
  rows = tables.rows.rates();
}

UsageHistory::UsageHistory(int experts, int top_k)
    : experts_(experts),
      stride_(ExpertStride(experts)),
      rows_(experts, top_k),
      state_(experts, {kNeverUsed, kNeverUsed}),
      weights_(2 * stride_),
      counts_(kRates * stride_) {}

void UsageHistory::Add(const LayerNeeds& needs, HazardTables* tables) {
  const LayerRouting& routing = needs.routing;
  rows_.Add(routing, &tables->rows);
  for (Expert& expert : state_) expert.age = std::min(expert.age + 1, kNeverUsed);
  float* uses = weights_.data();
  float* ranks = uses + stride_;
  std::fill(weights_.begin(), weights_.end(), 0.0f);
  for (const ExpertNeed& need : needs.experts) {
    uses[need.expert] = 1;
    Expert& expert = state_[need.expert];
    expert = {0, expert.age};
  }
  // A gate lists experts in descending order of weight. The expert at position k of top_k counts as
  // 1 - k / top_k uses.
  const auto top_k = static_cast<int>(routing.ids.size() / routing.tokens);
  const auto choices = static_cast<float>(routing.ids.size());
  for (int k = 0; k < top_k; ++k) {
    const float weight = static_cast<float>(top_k - k) / choices;
    for (size_t i = k; i < routing.ids.size(); i += top_k) {
      if (routing.ids[i] != LayerRouting::kNoExpert) ranks[routing.ids[i]] += weight;
    }
  }
  for (int rate = 0; rate < kRates; ++rate) {
    const float decay = Decays()[rate];
    const float* weights = rate < kUseRates ? uses : ranks;
    float* counts = counts_.data() + rate * stride_;
    totals_[rate] = totals_[rate] * decay + 1;
    for (int e = 0; e < experts_; e += kLanes) {
      Store4(Load4(counts + e) * decay + Load4(weights + e), counts + e);
    }
  }
}

UsageProjection::UsageProjection(int experts)
    : stride_(ExpertStride(experts)), counts_(kRates * stride_) {}

// Sorts the experts by age.
void UsageProjection::Start(const UsageHistory& history, absl::Span<const int32_t> experts) {
  history_ = &history;
  idle_ = 0;
  totals_.fill(1);
  std::copy(history.totals_.begin(), history.totals_.end(), totals_.begin());
  const auto group_age = [&](int32_t e) {
    return std::min(history.state_[e].age, kGroupAges.back());
  };
  std::array<int, kGroupAges.back() + 2> begins{};
  for (const int32_t e : experts) ++begins[group_age(e) + 1];
  for (size_t age = 1; age < begins.size(); ++age) begins[age] += begins[age - 1];
  order_.resize(experts.size());
  for (const int32_t e : experts) order_[begins[group_age(e)]++] = e;
  for (int rate = 0; rate < kRates; ++rate) {
    const float* from = history.counts_.data() + rate * stride_;
    float* to = counts_.data() + rate * (has_few() ? 1 : stride_);
    const int step = has_few() ? kFeatures : 1;
    for (size_t i = 0; i < order_.size(); ++i) to[i * step] = from[order_[i]];
  }
}

void UsageProjection::AddIdleForward() {
  ++idle_;
  for (int rate = 0; rate < kRates; ++rate) totals_[rate] = totals_[rate] * Decays()[rate] + 1;
  if (has_few()) {
    for (size_t i = 0; i < order_.size() * kFeatures; ++i) counts_[i] *= Decays()[i % kFeatures];
    return;
  }
  for (int rate = 0; rate < kRates; ++rate) {
    const float decay = Decays()[rate];
    float* counts = counts_.data() + rate * stride_;
    for (size_t i = 0; i < order_.size(); i += kLanes)
      Store4(Load4(counts + i) * decay, counts + i);
  }
}

void UsageProjection::Compute(const HazardRates& rates, UsageFeatures* features) const {
  SetGaps(rates, features);
  if (has_few()) {
    ComputeFew(rates, features);
  } else {
    ComputeMany(rates, features);
  }
}

void UsageProjection::SetGaps(const HazardRates& rates, UsageFeatures* features) const {
  const auto count = static_cast<int>(order_.size());
  float* gaps = features->values.data() + kGapFeature * stride_;
  int group = 0;
  for (int i = 0; i < count; ++i) {
    const UsageHistory::Expert& expert = history_->state_[order_[i]];
    const int32_t age = expert.age + idle_;
    while (group < kAgeGroups && age >= kGroupAges[group]) features->groups[group++] = i;
    const int32_t gap_case = std::min(age, kGapAges - 1) * kGaps + std::min(expert.gap, kGaps - 1);
    features->gap_cases[i] = gap_case;
    gaps[i] = rates.gaps[gap_case];
  }
  while (group <= kAgeGroups) features->groups[group++] = count;
}

void UsageProjection::ComputeFew(const HazardRates& rates, UsageFeatures* features) const {
  static_assert(kRates == 2 * kLanes + 1 && kFeatures == 3 * kLanes);
  const auto values = [&](int feature) { return features->values.data() + feature * stride_; };
  std::array<float, kFew> rows;
  history_->rows_.UseChances(order_, idle_, rates.rows, rows.data());
  Vec4 odds[kFew][3] = {};
  for (size_t i = 0; i < order_.size(); ++i) {
    const float* counts = counts_.data() + i * kFeatures;
    const Vec4 last = {counts[kRates - 1], values(kGapFeature)[i], rows[i], 0};
    for (int v = 0; v < 3; ++v) {
      const Vec4 prior_forwards = Load4(kPriorForwards + v * kLanes);
      const Vec4 uses = (v < 2 ? Load4(counts + v * kLanes) : last) + prior_forwards * rates.prior;
      odds[i][v] = LogOdds(uses, Load4(&totals_[v * kLanes]) + prior_forwards);
    }
  }
  for (int v = 0; v < 3; ++v) {
    Vec4 row[kLanes];
    Interleave4(odds[0][v], odds[1][v], row);
    for (int f = 0; f < kLanes; ++f) Store4(row[f], values(v * kLanes + f));
  }
  Store4(Vec4{} + 1.0f, values(kConstantFeature));
}

void UsageProjection::ComputeMany(const HazardRates& rates, UsageFeatures* features) const {
  const auto count = static_cast<int>(order_.size());
  const auto values = [&](int feature) { return features->values.data() + feature * stride_; };
  for (int rate = 0; rate < kRates; ++rate) {
    const float prior_forwards = kPriorForwards[rate];
    const float prior_uses = prior_forwards * rates.prior;
    const Vec4 total = Vec4{} + (totals_[rate] + prior_forwards);
    const float* counts = counts_.data() + rate * stride_;
    float* odds = values(rate);
    for (int i = 0; i < count; i += kLanes) {
      Store4(LogOdds(Load4(counts + i) + prior_uses, total), odds + i);
    }
  }
  history_->rows_.UseChances(order_, idle_, rates.rows, values(kRowFeature));
  for (int i = 0; i < count; i += kLanes) {
    for (const int feature : {kGapFeature, kRowFeature}) {
      float* chances = values(feature) + i;
      Store4(LogOdds(Load4(chances), Vec4{} + 1.0f), chances);
    }
    Store4(Vec4{} + 1.0f, values(kConstantFeature) + i);
  }
}

}  // namespace tidepool::moe
