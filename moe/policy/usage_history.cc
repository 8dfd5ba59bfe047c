#include "moe/policy/usage_history.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/base/check.h"

namespace tidepool::moe {
namespace {

constexpr int kRates = kUseRates + kStrengthRates;
constexpr int kRowOdds = kFeatures - 1;  // where that feature stands
// In forwards; 0: nothing fades. A geometric ladder from the last forward to always.
constexpr float kHalfLives[kRates] = {1, 3, 9, 27, 81, 0, 2, 10, 50};
constexpr int kShortRate = 3;  // those that contexts are made of
constexpr int kLongRate = 4;

constexpr float kLn2 = 0.693147181f;
// These priors and the contexts' memory were chosen on the design half of
// tests/moe/replay/trace_kinds.h; values nearby move its mean by less than 0.001.
// The prior of each rate counts as so many forwards, fewer where a rate remembers few.
constexpr float kPriorForwards[kRates] = {1, 2, 4, 6, 6, 6, 2, 4, 6};
// Odds are kept within these.
constexpr float kMinOdds = 5e-4f;
constexpr float kMaxOdds = 1e3f;

constexpr int32_t kMaxAge = 300;  // older is as old
constexpr int32_t kNeverUsed = 1000;

// A context remembers so many samples; and it begins with a few that are like the prior.
constexpr float kContextForwards = 5000;
constexpr float kContextPrior = 1.5f;
constexpr int kAgeClasses = 19;
constexpr int kRateClasses = 12;
constexpr int kShareClasses = 8;
constexpr int kGapClasses = 33;
constexpr int kPhases = 32;
constexpr int kPlaces = 8;
constexpr std::array<int, kContexts> kContextSizes = {
    256,                         // the last 8 forwards
    kAgeClasses* kRateClasses,   // age, short rate
    32 * kGapClasses,            // age, last gap
    kPhases * 12,                // age against the last gap, and how steady gaps are
    kRateClasses * 8,            // long rate, the last 3 forwards
    kAgeClasses* kShareClasses,  // age, share at the last use
    3 * kAgeClasses* kPlaces,    // age, place at the last use, uses in the two forwards before it
    12 * kPlaces* kPlaces,       // age, place at the last two uses, the gap between them
};

// Where each table begins, and where the last one ends.
constexpr auto kContextBegins = [] {
  std::array<int, kContexts + 1> begins{};
  for (int c = 0; c < kContexts; ++c) begins[c + 1] = begins[c] + kContextSizes[c];
  return begins;
}();

// Exact up to 8, then in growing steps.
constexpr int AgeClass(int32_t age) {
  if (age <= 8) return age;
  int age_class = 9;
  for (const int32_t last : {10, 12, 16, 24, 32, 48, 64, 128, 256}) age_class += age > last;
  return age_class;
}

// Of age groups: who is older is in the last one, too.
constexpr int kOldest = kGroupAges.back();

// AgeClass of every age up to the last one that has a class of its own.
constexpr auto kAgeClassOf = [] {
  std::array<uint8_t, 258> classes{};
  for (int age = 0; age < static_cast<int>(classes.size()); ++age) {
    classes[age] = static_cast<uint8_t>(AgeClass(age));
  }
  return classes;
}();

// By powers of two; 0 for what was never used.
int RateClass(float rate) {
  if (rate <= 0) return 0;
  const int exponent = static_cast<int>(std::bit_cast<uint32_t>(rate) >> 23) - 127;
  return std::clamp(exponent + 10, 1, kRateClasses - 1);
}

int ShareClass(float share) {
  constexpr float kLast[] = {0, 0.04f, 0.07f, 0.13f, 0.26f, 0.51f, 0.9f};
  return static_cast<int>(std::lower_bound(std::begin(kLast), std::end(kLast), share) - kLast);
}

// How regular uses have been, and how long their gaps are.
int GapPattern(int32_t gap, int32_t gap_before) {
  const int steady = gap == gap_before ? 0 : std::abs(gap - gap_before) <= 1 ? 1 : 2;
  const int length = gap < 4 ? 0 : gap < 12 ? 1 : gap < 40 ? 2 : 3;
  return steady * 4 + length;
}

// Of counts that fade. The prior counts as so many forwards, with so many uses.
Vec4 LogOdds(Vec4 used, float total, float prior_forwards, float prior_used) {
  used += prior_used;
  const Vec4 unused = Max4(total + prior_forwards - used, Vec4{} + 1e-6f);
  return Log4(Clamp4(used / unused, kMinOdds, kMaxOdds)) * kLn2;
}

}  // namespace

IdleGap::IdleGap(int length) : forwards(length) {
  for (int rate = 0; rate < kRates; ++rate) {
    const float half_life = kHalfLives[rate];
    const auto count = static_cast<float>(length);
    fade[rate] = half_life > 0 ? std::exp2(-count / half_life) : 1.0f;
    grown[rate] = half_life > 0 ? (1 - fade[rate]) / (1 - std::exp2(-1 / half_life)) : count;
  }
}

ContextTables::ContextTables(float prior)
    : rows_(prior),
      cells_(kContextBegins[kContexts], {kContextPrior * prior, kContextPrior, false}),
      log_odds_(kContextBegins[kContexts],
                std::log(std::clamp(prior / std::max(1 - prior, 1e-6f), kMinOdds, kMaxOdds))) {}

void ContextTables::Learn(absl::Span<const int32_t> cells, int stride,
                          absl::Span<const float> used) {
  touched_.clear();
  for (int c = 0; c < kContexts; ++c) {
    const int32_t* of = cells.data() + c * stride;
    for (size_t i = 0; i < used.size(); ++i) {
      Cell& cell = cells_[of[i]];
      cell.used += used[i] > 0 ? 1.0f : 0.0f;
      cell.seen += 1;
      if (!cell.touched) touched_.push_back(of[i]);
      cell.touched = true;
    }
  }
  for (size_t begin = 0; begin < touched_.size(); begin += kLanes) {
    const auto lanes = static_cast<int>(std::min<size_t>(kLanes, touched_.size() - begin));
    Vec4 hits = Vec4{} + 1.0f;
    Vec4 misses = Vec4{} + 1.0f;
    for (int i = 0; i < lanes; ++i) {
      Cell& cell = cells_[touched_[begin + i]];
      if (cell.seen > kContextForwards) {
        cell.used *= kContextForwards / cell.seen;
        cell.seen = kContextForwards;
      }
      hits[i] = cell.used;
      misses[i] = cell.seen - cell.used;
    }
    const Vec4 odds = hits / Max4(misses, Vec4{} + 1e-6f);
    const Vec4 log_odds = Log4(Clamp4(odds, kMinOdds, kMaxOdds)) * kLn2;
    for (int i = 0; i < lanes; ++i) {
      log_odds_[touched_[begin + i]] = log_odds[i];
      cells_[touched_[begin + i]].touched = false;
    }
  }
}

void LayerUse::Set(const LayerNeeds& needs) {
  const LayerRouting& routing = needs.routing;
  const auto tokens = static_cast<float>(routing.tokens);
  std::fill(share.begin(), share.end(), 0.0f);
  std::fill(strength.begin(), strength.end(), 0.0f);
  for (const ExpertNeed& need : needs.experts) {
    share[need.expert] = static_cast<float>(need.tokens) / tokens;
    place[need.expert] = kPlaces - 1;
  }
  const auto top_k = static_cast<int>(routing.ids.size() / routing.tokens);
  for (int k = 0; k < top_k; ++k) {
    const float weight = (1 - static_cast<float>(k) / static_cast<float>(top_k)) / tokens;
    const int32_t place_class = k * kPlaces / top_k;
    for (size_t i = k; i < routing.ids.size(); i += top_k) {
      const int32_t expert = routing.ids[i];
      strength[expert] += weight;
      place[expert] = std::min(place[expert], place_class);
    }
  }
}

UsageHistory::UsageHistory(int experts, int top_k)
    : experts_(experts),
      stride_(ExpertStride(experts)),
      prior_(static_cast<float>(top_k) / static_cast<float>(experts)),
      rows_(experts, top_k),
      state_(experts, {.age = kNeverUsed, .gap = kNeverUsed, .gap_before = kNeverUsed}),
      fading_(kRates * stride_),
      sorted_(kRates * stride_) {}

void UsageHistory::Add(const LayerUse& use) {
  for (int rate = 0; rate < kRates; ++rate) {
    const float fade = one_.fade[rate];
    totals_[rate] = totals_[rate] * fade + 1;
    float* fading = fading_.data() + rate * stride_;
    for (int e = 0; e < experts_; e += kLanes) {
      const Vec4 used = Load4(&use.share[e]) > 0.0f ? Vec4{} + 1.0f : Vec4{};
      const Vec4 weight = rate < kUseRates ? used : Load4(&use.strength[e]);
      Store4(Load4(fading + e) * fade + weight, fading + e);
    }
  }
  for (int e = 0; e < experts_; ++e) {
    Expert& expert = state_[e];
    expert.uses <<= 1;
    if (use.share[e] > 0) {
      expert.uses |= 1;
      expert.gap_before = expert.gap;
      expert.gap = std::min(expert.age + 1, kNeverUsed);
      expert.age = 0;
      expert.share = ShareClass(use.share[e]);
      expert.place_before = expert.place;
      expert.place = use.place[e];
    } else {
      expert.age = std::min(expert.age + 1, kNeverUsed);
    }
  }
}

void UsageHistory::Sort(absl::Span<const int32_t> experts) {
  const auto count = static_cast<int>(experts.size());
  order_.resize(count);
  sorted_state_.resize(count);
  std::array<int, kOldest + 2> begins{};
  for (const int32_t e : experts) ++begins[std::min(state_[e].age, kOldest) + 1];
  for (int age = 0; age <= kOldest; ++age) begins[age + 1] += begins[age];
  for (const int32_t e : experts) order_[begins[std::min(state_[e].age, kOldest)]++] = e;
  for (int i = 0; i < count; ++i) sorted_state_[i] = state_[order_[i]];
  for (int rate = 0; rate < kRates; ++rate) {
    const float* from = fading_.data() + rate * stride_;
    float* to = sorted_.data() + rate * stride_;
    for (int i = 0; i < count; ++i) to[i] = from[order_[i]];
  }
}

void UsageHistory::Compute(const IdleGap& silence, const ContextTables& tables,
                           LayerFeatures* features) const {
  ComputeRates(silence, features);
  // What a fading count has to be multiplied with to be a rate.
  const auto scale_of = [&](int rate) {
    const float fade = silence.fade[rate];
    return fade / std::max(totals_[rate] * fade + silence.grown[rate], 1.0f);
  };
  const float short_scale = scale_of(kShortRate);
  const float long_scale = scale_of(kLongRate);
  const float* short_rates = sorted_.data() + kShortRate * stride_;
  const float* long_rates = sorted_.data() + kLongRate * stride_;
  float* ages = features->values.data() + (kRates + kContexts) * stride_;
  float* row_odds = features->values.data() + kRowOdds * stride_;
  const auto count = static_cast<int>(order_.size());
  int group = 0;
  for (int i = 0; i < count; ++i) {
    const Expert& expert = sorted_state_[i];
    const int32_t age = expert.age + silence.forwards;
    while (group < kAgeGroups && age >= kGroupAges[group]) features->groups[group++] = i;
    FindCells(expert, silence.forwards, short_rates[i] * short_scale, long_rates[i] * long_scale,
              features->cells.data() + i);
    ages[i] = static_cast<float>(age);
    row_odds[i] = rows_.Unused(order_[i], silence.forwards, tables.rows());
  }
  while (group <= kAgeGroups) features->groups[group++] = count;
  ReadTables(tables, count, features);
  ComputeAges(count, features);
  ComputeRowOdds(count, features);
}

void UsageHistory::ComputeRates(const IdleGap& silence, LayerFeatures* features) const {
  for (int rate = 0; rate < kRates; ++rate) {
    const float fade = silence.fade[rate];
    const float total = totals_[rate] * fade + silence.grown[rate];
    const float prior = kPriorForwards[rate];
    const float* from = sorted_.data() + rate * stride_;
    float* to = features->values.data() + rate * stride_;
    for (size_t i = 0; i < order_.size(); i += kLanes) {
      Store4(LogOdds(Load4(from + i) * fade, total, prior, prior * prior_), to + i);
    }
  }
}

void UsageHistory::FindCells(const Expert& expert, int32_t silence, float short_rate,
                             float long_rate, int32_t* cells) const {
  const int32_t age = expert.age + silence;
  const auto uses = static_cast<int32_t>(silence < 32 ? expert.uses << silence : 0);
  const int age_class = kAgeClassOf[std::min<size_t>(age, kAgeClassOf.size() - 1)];
  const int phase = std::clamp(age - expert.gap, -kPhases / 2, kPhases / 2 - 1) + kPhases / 2;
  // In the two forwards before the last use.
  const uint32_t earlier = age < 30 ? static_cast<uint32_t>(uses) >> (age + 1) : 0;
  const auto before = static_cast<int>((earlier & 1) + (earlier >> 1 & 1));
  const int32_t context[kContexts] = {
      uses & 255,
      age_class * kRateClasses + RateClass(short_rate),
      std::min(age, 31) * kGapClasses + std::min(expert.gap, kGapClasses - 1),
      phase * 12 + GapPattern(expert.gap, expert.gap_before),
      RateClass(long_rate) * 8 + (uses & 7),
      age_class * kShareClasses + expert.share,
      (before * kAgeClasses + age_class) * kPlaces + expert.place,
      (std::min(age, 3) * 3 + std::min(expert.gap, 3) - 1) * kPlaces * kPlaces +
          expert.place * kPlaces + expert.place_before,
  };
  for (int c = 0; c < kContexts; ++c) cells[c * stride_] = kContextBegins[c] + context[c];
}

void UsageHistory::ReadTables(const ContextTables& tables, int count,
                              LayerFeatures* features) const {
  for (int c = 0; c < kContexts; ++c) {
    const int32_t* cells = features->cells.data() + c * stride_;
    float* to = features->values.data() + (kRates + c) * stride_;
    for (int i = 0; i < count; ++i) to[i] = tables.log_odds(cells[i]);
  }
}

void UsageHistory::ComputeAges(int count, LayerFeatures* features) const {
  float* to = features->values.data() + (kRates + kContexts) * stride_;
  for (int i = 0; i < count; i += kLanes) {
    const Vec4 age = Clamp4(Load4(to + i), 0, kMaxAge);
    Store4(Log4(age + 1.0f) * (0.5f * kLn2) - 1.0f, to + i);
    Store4(age == 0.0f ? Vec4{} + 1.0f : Vec4{}, to + stride_ + i);
    Store4(1.0f / (age + 1.0f), to + 2 * stride_ + i);
    Store4(Vec4{} + 1.0f, to + 3 * stride_ + i);
  }
}

void UsageHistory::ComputeRowOdds(int count, LayerFeatures* features) const {
  float* odds = features->values.data() + kRowOdds * stride_;
  for (int i = 0; i < count; i += kLanes) {
    const Vec4 unused = Exp4(Clamp4(Load4(odds + i), -12, 0));
    Store4(Log4(Clamp4((1.0f - unused) / unused, kMinOdds, kMaxOdds)) * kLn2, odds + i);
  }
}

}  // namespace tidepool::moe
