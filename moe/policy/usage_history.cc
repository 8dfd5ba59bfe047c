#include "moe/policy/usage_history.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/base/check.h"

namespace tidepool::moe {
namespace {

constexpr int kRates = kUseRates + kShareRates;
// In forwards; 0: nothing fades. A geometric ladder from the last forward to always.
constexpr float kHalfLives[kRates] = {1, 2, 4, 8, 16, 32, 100, 400, 0, 1, 4, 16, 64};
constexpr int kShortRate = 4;  // those that contexts are made of
constexpr int kLongRate = 6;

constexpr float kLn2 = 0.693147181f;
// A prior counts as so many forwards.
constexpr float kPriorForwards = 3;
// Odds are kept within these.
constexpr float kLeastOdds = 5e-4f;
constexpr float kMostOdds = 1e3f;

constexpr int32_t kMaxAge = 300;  // older is as old
constexpr int32_t kNeverUsed = 1000;

// Memory of a context: it weighs new uses by 1 / this at least.
constexpr float kContextForwards = 1000;
constexpr int kAgeClasses = 19;
constexpr int kRateClasses = 12;
constexpr int kShareClasses = 8;
constexpr int kGapClasses = 33;
constexpr int kPhases = 32;
constexpr std::array<int, kContexts> kContextSizes = {
    256,                         // the last 8 forwards
    kAgeClasses* kRateClasses,   // age, short rate
    32 * kGapClasses,            // age, last gap
    kPhases * 12,                // age against the last gap, and how steady gaps are
    kRateClasses * 8,            // long rate, the last 3 forwards
    kAgeClasses* kShareClasses,  // age, share at the last use
};

int ContextBegin(int context) {
  int begin = 0;
  for (int c = 0; c < context; ++c) begin += kContextSizes[c];
  return begin;
}

// Exact up to 8, then in growing steps.
constexpr int AgeClass(int32_t age) {
  if (age <= 8) return age;
  int age_class = 9;
  for (const int32_t last : {10, 12, 16, 24, 32, 48, 64, 128, 256}) age_class += age > last;
  return age_class;
}

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

}  // namespace

Silence::Silence(int length) : forwards(length) {
  for (int rate = 0; rate < kRates; ++rate) {
    const float half_life = kHalfLives[rate];
    const auto count = static_cast<float>(length);
    fade[rate] = half_life > 0 ? std::exp2(-count / half_life) : 1.0f;
    grown[rate] = half_life > 0 ? (1 - fade[rate]) / (1 - std::exp2(-1 / half_life)) : count;
  }
}

ContextTables::ContextTables(float prior)
    : cells_(ContextBegin(kContexts),
             {prior, 0,
              std::log(std::clamp(prior / std::max(1 - prior, 1e-6f), kLeastOdds, kMostOdds))}) {}

void ContextTables::Learn(absl::Span<const int32_t> cells, int stride,
                          absl::Span<const float> used) {
  const auto count = static_cast<int>(used.size());
  for (int c = 0; c < kContexts; ++c) {
    const int32_t* of = cells.data() + c * stride;
    for (int i = 0; i < count; ++i) {
      Cell& cell = cells_[of[i]];
      cell.seen = std::min(cell.seen + 1, kContextForwards);
      cell.chance += ((used[i] > 0 ? 1.0f : 0.0f) - cell.chance) / (cell.seen + 1.5f);
    }
    for (int i = 0; i < count; i += kLanes) {
      const int lanes = std::min(kLanes, count - i);
      Vec4 chance = Vec4{} + 0.5f;
      for (int lane = 0; lane < lanes; ++lane) chance[lane] = cells_[of[i + lane]].chance;
      const Vec4 odds = chance / Max4(1.0f - chance, Vec4{} + 1e-6f);
      const Vec4 log_odds = Log4(Clamp4(odds, kLeastOdds, kMostOdds)) * kLn2;
      for (int lane = 0; lane < lanes; ++lane) cells_[of[i + lane]].log_odds = log_odds[lane];
    }
  }
}

UsageHistory::UsageHistory(int experts, float prior)
    : experts_(experts),
      stride_(Stride(experts)),
      prior_(prior),
      state_(experts, {.age = kNeverUsed, .gap = kNeverUsed, .gap_before = kNeverUsed}),
      fading_(kRates * stride_),
      order_(experts),
      sorted_state_(experts),
      sorted_(kRates * stride_) {}

void UsageHistory::Add(absl::Span<const float> share) {
  for (int rate = 0; rate < kRates; ++rate) {
    const float fade = one_.fade[rate];
    totals_[rate] = totals_[rate] * fade + 1;
    float* fading = fading_.data() + rate * stride_;
    for (int e = 0; e < experts_; ++e) {
      const float used = share[e] > 0 ? 1.0f : 0.0f;
      fading[e] = fading[e] * fade + (rate < kUseRates ? used : share[e]);
    }
  }
  for (int e = 0; e < experts_; ++e) {
    Expert& expert = state_[e];
    expert.uses <<= 1;
    if (share[e] > 0) {
      expert.uses |= 1;
      expert.gap_before = expert.gap;
      expert.gap = std::min(expert.age + 1, kNeverUsed);
      expert.age = 0;
      expert.share = ShareClass(share[e]);
    } else {
      expert.age = std::min(expert.age + 1, kNeverUsed);
    }
  }
}

void UsageHistory::Sort() {
  constexpr int kOldest = kGroupAges.back();
  std::array<int, kOldest + 2> begins{};
  for (const Expert& expert : state_) ++begins[std::min(expert.age, kOldest) + 1];
  for (int age = 0; age <= kOldest; ++age) begins[age + 1] += begins[age];
  for (int e = 0; e < experts_; ++e) order_[begins[std::min(state_[e].age, kOldest)]++] = e;
  for (int i = 0; i < experts_; ++i) sorted_state_[i] = state_[order_[i]];
  for (int rate = 0; rate < kRates; ++rate) {
    const float* from = fading_.data() + rate * stride_;
    float* to = sorted_.data() + rate * stride_;
    for (int i = 0; i < experts_; ++i) to[i] = from[order_[i]];
  }
}

void UsageHistory::Compute(const Silence& silence, const ContextTables& tables,
                           LayerFeatures* features) const {
  ComputeRates(silence, features);
  ComputeContexts(silence, tables, features);
  ComputeAges(silence.forwards, features);
  int position = 0;
  for (int group = 0; group < kAgeGroups; ++group) {
    while (position < experts_ &&
           sorted_state_[position].age + silence.forwards < kGroupAges[group]) {
      ++position;
    }
    features->groups[group] = position;
  }
  features->groups[kAgeGroups] = experts_;
}

void UsageHistory::ComputeRates(const Silence& silence, LayerFeatures* features) const {
  for (int rate = 0; rate < kRates; ++rate) {
    const float fade = silence.fade[rate];
    const float total = totals_[rate] * fade + silence.grown[rate];
    const float* from = sorted_.data() + rate * stride_;
    float* to = features->values.data() + rate * stride_;
    for (int i = 0; i < experts_; i += kLanes) {
      const Vec4 used = Load4(from + i) * fade + kPriorForwards * prior_;
      const Vec4 unused = Max4(total + kPriorForwards - used, Vec4{} + 1e-6f);
      Store4(Log4(Clamp4(used / unused, kLeastOdds, kMostOdds)) * kLn2, to + i);
    }
  }
}

void UsageHistory::ComputeContexts(const Silence& silence, const ContextTables& tables,
                                   LayerFeatures* features) const {
  // What a fading count has to be multiplied with to be a rate.
  const auto scale_of = [&](int rate) {
    const float fade = silence.fade[rate];
    return fade / std::max(totals_[rate] * fade + silence.grown[rate], 1.0f);
  };
  const float short_scale = scale_of(kShortRate);
  const float long_scale = scale_of(kLongRate);
  const float* short_rates = sorted_.data() + kShortRate * stride_;
  const float* long_rates = sorted_.data() + kLongRate * stride_;
  int32_t* cells = features->cells.data();
  for (int i = 0; i < experts_; ++i) {
    const Expert& expert = sorted_state_[i];
    const int32_t age = expert.age + silence.forwards;
    const auto uses =
        static_cast<int32_t>(silence.forwards < 32 ? expert.uses << silence.forwards : 0);
    const int age_class = kAgeClassOf[std::min<size_t>(age, kAgeClassOf.size() - 1)];
    const int phase = std::clamp(age - expert.gap, -kPhases / 2, kPhases / 2 - 1) + kPhases / 2;
    const int32_t context[kContexts] = {
        uses & 255,
        age_class * kRateClasses + RateClass(short_rates[i] * short_scale),
        std::min(age, 31) * kGapClasses + std::min(expert.gap, kGapClasses - 1),
        phase * 12 + GapPattern(expert.gap, expert.gap_before),
        RateClass(long_rates[i] * long_scale) * 8 + (uses & 7),
        age_class * kShareClasses + expert.share,
    };
    for (int c = 0; c < kContexts; ++c) cells[c * stride_ + i] = context[c];
  }
  for (int c = 0; c < kContexts; ++c) {
    const int begin = ContextBegin(c);
    float* to = features->values.data() + (kRates + c) * stride_;
    for (int i = 0; i < experts_; ++i) {
      int32_t& cell = cells[c * stride_ + i];
      cell += begin;
      to[i] = tables.log_odds(cell);
    }
  }
}

void UsageHistory::ComputeAges(int silence, LayerFeatures* features) const {
  float* to = features->values.data() + (kRates + kContexts) * stride_;
  for (int i = 0; i < experts_; ++i) {
    const int32_t age = std::min(sorted_state_[i].age + silence, kMaxAge);
    const float next = 1.0f + static_cast<float>(age);
    to[i] = next;
    to[stride_ + i] = age == 0 ? 1.0f : 0.0f;
    to[2 * stride_ + i] = 1 / next;
    to[3 * stride_ + i] = 1;
  }
  for (int i = 0; i < experts_; i += kLanes) {
    Store4(Log4(Max4(Load4(to + i), Vec4{} + 1.0f)) * (0.5f * kLn2) - 1.0f, to + i);
  }
}

}  // namespace tidepool::moe
