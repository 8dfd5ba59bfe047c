// Gate: ties, NaNs, groups and biases, with exactly known choices.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/math.h"
#include "kernels/reference/reference_backend.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

using Ids = std::vector<int32_t>;

struct Choice {
  Ids ids;
  std::vector<float> weights;
};

Choice Choose(KernelBackend& backend, const std::vector<float>& logits, const GateSpec& spec) {
  const int64_t rows = static_cast<int64_t>(logits.size()) / spec.experts;
  Choice choice = {Ids(rows * spec.top_k, -1), std::vector<float>(rows * spec.top_k)};
  backend.Gate({logits.data(), rows, spec.experts}, spec, choice.ids.data(), choice.weights.data());
  return choice;
}

// Calls check(backend) for the reference and every ISA.
template <typename Check>
void ForBackends(Check check) {
  std::vector<std::unique_ptr<KernelBackend>> backends;
  backends.push_back(MakeReferenceBackend(Precision::kFast));
  for (const Isa isa : {Isa::kPortable, Isa::kAvx2, Isa::kBest}) {
    auto made = MakeCpuBackend({.threads = 2, .isa = isa});
    if (made.ok()) backends.push_back(*std::move(made));
  }
  for (const auto& backend : backends) {
    SCOPED_TRACE(backend->Description());
    check(*backend);
  }
}

void ExpectWeights(const Choice& choice, const std::vector<double>& expected) {
  ASSERT_EQ(choice.weights.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(choice.weights[i], expected[i], 1e-6 * std::fabs(expected[i])) << i;
  }
}

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }

TEST(GateTest, SurvivesNans) {
  ForBackends([](KernelBackend& backend) {
    std::vector<float> logits(12, NAN);
    logits[7] = 3;
    logits[8] = INFINITY;
    const Choice choice = Choose(backend, logits, {6, 4, true});
    for (const int64_t first : {0, 4}) {
      EXPECT_EQ(Ids(choice.ids.begin() + first, choice.ids.begin() + first + 4), Ids({0, 1, 2, 3}));
      EXPECT_TRUE(std::isnan(choice.weights[first]));
    }
  });
}

// Without groups, an expert whose score is NaN is chosen only after all others.
TEST(GateTest, NanRanksBelowEveryNumber) {
  const std::vector<float> logits = {NAN, -INFINITY, 1, NAN, 2};
  ForBackends([&](KernelBackend& backend) {
    for (const GateScore score : {GateScore::kSigmoid, GateScore::kSoftmaxOfChosen}) {
      const Choice three = Choose(backend, logits, {.experts = 5, .top_k = 3, .score = score});
      EXPECT_EQ(three.ids, Ids({4, 2, 1}));
      EXPECT_TRUE(std::isfinite(three.weights[0]));
      EXPECT_EQ(three.weights[2], 0);
      const Choice all = Choose(backend, logits, {.experts = 5, .top_k = 5, .score = score});
      EXPECT_EQ(all.ids, Ids({4, 2, 1, 0, 3}));
      EXPECT_TRUE(std::isnan(all.weights[3]));
    }
    // A NaN in the bias has the same rank, and leaves the weight alone.
    const std::vector<float> bias = {0, NAN, 0};
    const Choice biased =
        Choose(backend, {0, 5, -5},
               {.experts = 3, .top_k = 3, .score = GateScore::kSigmoid, .selection_bias = bias});
    EXPECT_EQ(biased.ids, Ids({0, 2, 1}));
    ExpectWeights(biased, {0.5, SigmoidOf(-5), SigmoidOf(5)});
  });
}

TEST(GateTest, TiesGoToTheLowerId) {
  ForBackends([](KernelBackend& backend) {
    for (const GateScore score :
         {GateScore::kSoftmax, GateScore::kSigmoid, GateScore::kSoftmaxOfChosen}) {
      const Choice choice =
          Choose(backend, {1, 2, 2, 0, 2, 1}, {.experts = 6, .top_k = 4, .score = score});
      EXPECT_EQ(choice.ids, Ids({1, 2, 4, 0}));
      EXPECT_EQ(choice.weights[0], choice.weights[2]);
    }
    // -0 and 0 are a tie.
    EXPECT_EQ(Choose(backend, {-0.0f, 0.0f, -0.0f},
                     {.experts = 3, .top_k = 2, .score = GateScore::kSoftmaxOfChosen})
                  .ids,
              Ids({0, 1}));
  });
}

TEST(GateTest, TheBiasOnlyChooses) {
  const std::vector<float> bias = {-3, 0.5f, -1, 0.25f};
  ForBackends([&](KernelBackend& backend) {
    GateSpec spec = {
        .experts = 4, .top_k = 2, .score = GateScore::kSigmoid, .selection_bias = bias};
    // The selection scores are -2, 1, 0 and 0.75. In the second call, all are negative.
    Choice choice = Choose(backend, {40, 0, 40, 0}, spec);
    EXPECT_EQ(choice.ids, Ids({1, 3}));
    ExpectWeights(choice, {0.5, 0.5});
    const std::vector<float> negative = {-3, -2, -4, -5};
    spec.selection_bias = negative;
    spec.top_k = 3;
    choice = Choose(backend, {0, 0, 40, 1}, spec);
    EXPECT_EQ(choice.ids, Ids({1, 0, 2}));
    ExpectWeights(choice, {0.5, 0.5, 1});
  });
}

TEST(GateTest, GroupsAreKeptByTheirScores) {
  // There are three groups of two experts.
  const std::vector<float> logits = {4, -9, 1, 1, 0, 3};
  ForBackends([&](KernelBackend& backend) {
    GateSpec spec = {.experts = 6,
                     .top_k = 2,
                     .score = GateScore::kSigmoid,
                     .groups = 3,
                     .groups_kept = 1,
                     .group_score = GroupScore::kMax};
    EXPECT_EQ(Choose(backend, logits, spec).ids, Ids({0, 1}));
    spec.group_score = GroupScore::kSumOfTwo;
    EXPECT_EQ(Choose(backend, logits, spec).ids, Ids({2, 3}));
    spec.groups_kept = 2;
    spec.top_k = 4;
    EXPECT_EQ(Choose(backend, logits, spec).ids, Ids({5, 2, 3, 4}));
    spec.groups_kept = 3;
    spec.top_k = 6;
    EXPECT_EQ(Choose(backend, logits, spec).ids, Ids({0, 5, 2, 3, 4, 1}));
  });
}

TEST(GateTest, GroupTiesAndNans) {
  ForBackends([](KernelBackend& backend) {
    GateSpec spec = {.experts = 6,
                     .top_k = 2,
                     .score = GateScore::kSoftmaxOfChosen,
                     .groups = 3,
                     .groups_kept = 2,
                     .group_score = GroupScore::kSumOfTwo};
    // The sums are equal.
    EXPECT_EQ(Choose(backend, {1, 2, 3, 0, 4, -1}, spec).ids, Ids({2, 1}));
    // The sum of a group with a NaN is NaN, which ranks below negative sums.
    EXPECT_EQ(Choose(backend, {NAN, 90, -3, -4, -5, -6}, spec).ids, Ids({2, 3}));
    // The score of a group with a NaN is its largest number.
    spec.group_score = GroupScore::kMax;
    EXPECT_EQ(Choose(backend, {NAN, 90, -3, -4, -5, -6}, spec).ids, Ids({1, 2}));
    // Each group has one expert.
    spec.groups = 6;
    spec.group_score = GroupScore::kSumOfTwo;
    EXPECT_EQ(Choose(backend, {NAN, 90, -3, -4, -5, -6}, spec).ids, Ids({1, 2}));
  });
}

TEST(GateTest, NormalisesAndScales) {
  ForBackends([](KernelBackend& backend) {
    GateSpec spec = {.experts = 3,
                     .top_k = 2,
                     .normalize = true,
                     .score = GateScore::kSigmoid,
                     .scale = 2.5f,
                     .normalize_epsilon = 1e-20f};
    const double sum = SigmoidOf(1) + SigmoidOf(2);
    ExpectWeights(Choose(backend, {1, 2, 0}, spec),
                  {2.5 * SigmoidOf(2) / sum, 2.5 * SigmoidOf(1) / sum});
    // All chosen scores are 0: the epsilon avoids a division by zero.
    const Choice zero = Choose(backend, {-200, -200, -200}, spec);
    EXPECT_EQ(zero.ids, Ids({0, 1}));
    EXPECT_EQ(zero.weights, std::vector<float>({0, 0}));
    // Softmax over the chosen logits.
    const double e = std::exp(1.0);
    ExpectWeights(Choose(backend, {1, 2, 0},
                         {.experts = 3, .top_k = 2, .score = GateScore::kSoftmaxOfChosen}),
                  {e / (1 + e), 1 / (1 + e)});
  });
}

// Applies a GateSpec with plain loops in double precision, as backend.h describes it.
class PlainGate {
 public:
  PlainGate(const GateSpec& spec, const float* logits) : spec_(spec), scores_(spec.experts) {
    double sum = 0;
    double max = -INFINITY;
    for (int e = 0; e < spec.experts; ++e) max = std::fmax(max, logits[e]);
    for (int e = 0; e < spec.experts; ++e) sum += std::exp(logits[e] - max);
    for (int e = 0; e < spec.experts; ++e) {
      if (spec.score == GateScore::kSoftmax) scores_[e] = std::exp(logits[e] - max) / sum;
      if (spec.score == GateScore::kSigmoid) scores_[e] = SigmoidOf(logits[e]);
      if (spec.score == GateScore::kSoftmaxOfChosen) scores_[e] = logits[e];
    }
    selection_ = scores_;
    for (size_t e = 0; e < spec.selection_bias.size(); ++e) selection_[e] += spec.selection_bias[e];
  }

  // Returns the `count` positions with the highest values. Of equal values, the first one comes
  // first.
  Ids Highest(const std::vector<double>& values, int count, const std::vector<bool>& allowed) {
    Ids chosen;
    std::vector<bool> left = allowed;
    while (static_cast<int>(chosen.size()) < count) {
      int best = -1;
      for (int i = 0; i < static_cast<int>(values.size()); ++i) {
        if (!left[i]) continue;
        if (best >= 0) {
          const double gap = std::fabs(values[i] - values[best]);
          if (gap > 0) narrowest_ = std::min(narrowest_, gap);
        }
        const bool above = best < 0 || values[i] > values[best] ||
                           (std::isnan(values[best]) && !std::isnan(values[i]));
        if (above) best = i;
      }
      chosen.push_back(best);
      left[best] = false;
    }
    return chosen;
  }

  Choice Choose() {
    const int size = spec_.experts / spec_.groups;
    std::vector<double> group_scores;
    for (int g = 0; g < spec_.groups; ++g) {
      std::vector<bool> mine(spec_.experts, false);
      std::fill_n(mine.begin() + std::ptrdiff_t{g} * size, size, true);
      const bool adds = spec_.group_score == GroupScore::kSumOfTwo && size > 1;
      double score = 0;
      for (const int32_t e : Highest(selection_, adds ? 2 : 1, mine)) score += selection_[e];
      group_scores.push_back(score);
    }
    std::vector<bool> allowed(spec_.experts, spec_.groups_kept == spec_.groups);
    if (spec_.groups_kept < spec_.groups) {
      const std::vector<bool> all(spec_.groups, true);
      for (const int32_t g : Highest(group_scores, spec_.groups_kept, all)) {
        std::fill_n(allowed.begin() + std::ptrdiff_t{g} * size, size, true);
      }
    }
    Choice choice;
    choice.ids = Highest(selection_, spec_.top_k, allowed);
    double sum = 0;
    double exponentials = 0;
    for (const int32_t e : choice.ids) sum += scores_[e];
    for (const int32_t e : choice.ids) exponentials += std::exp(scores_[e]);
    for (const int32_t e : choice.ids) {
      double weight = scores_[e];
      if (spec_.score == GateScore::kSoftmaxOfChosen) {
        weight = std::exp(weight) / exponentials;
        sum = 1;
      }
      if (spec_.normalize) weight /= sum + spec_.normalize_epsilon;
      choice.weights.push_back(static_cast<float>(weight * spec_.scale));
    }
    return choice;
  }

  // Returns the smallest difference between unequal values that were compared.
  double narrowest() const { return narrowest_; }

 private:
  const GateSpec& spec_;
  std::vector<double> scores_;
  std::vector<double> selection_;
  double narrowest_ = INFINITY;
};

// Returns values with many ties. About one value in `nan_every` is NaN; none is if `nan_every` is
// 0.
std::vector<float> FewValues(Noise* noise, int64_t count, int nan_every) {
  constexpr float kValues[] = {-6, -1.5f, -0.75f, -0.0f, 0.0f, 0.5f, 1.25f, 3};
  std::vector<float> values(count);
  for (float& value : values) {
    value = kValues[noise->Below(8)];
    if (nan_every > 0 && noise->Below(nan_every) == 0) value = NAN;
  }
  return values;
}

// Returns a bias. `kind` 0: no bias; 1: negative values; 2: negative and positive values; 3:
// negative values and NaNs.
std::vector<float> BiasOf(Noise* noise, int experts, int kind) {
  constexpr float kBiases[] = {-0.0625f, -2, -0.4375f, -7, -1};
  std::vector<float> bias(kind == 0 ? 0 : experts);
  for (float& value : bias) {
    value = kBiases[noise->Below(5)];
    if (kind == 2 && noise->Below(2) == 0) value = -value;
    if (kind == 3 && noise->Below(4) == 0) value = NAN;
  }
  return bias;
}

// Calls check(spec) for every way to divide the experts into groups, and every number of kept
// groups. Each has several values of top_k, up to the number of experts in the kept groups.
template <typename Check>
void ForShapes(Check check) {
  for (const int experts : {1, 2, 6, 8, 12, 33}) {
    for (int groups = 1; groups <= experts; ++groups) {
      if (experts % groups != 0) continue;
      for (int kept = 1; kept <= groups; ++kept) {
        const int remaining = experts / groups * kept;
        for (const int top_k : {1, 2, remaining - 1, remaining}) {
          if (top_k < 1 || top_k > remaining) continue;
          check(
              GateSpec{.experts = experts, .top_k = top_k, .groups = groups, .groups_kept = kept});
        }
      }
    }
  }
}

void CompareWithPlainGate(KernelBackend& backend, const GateSpec& spec,
                          const std::vector<float>& logits) {
  const Choice ours = Choose(backend, logits, spec);
  for (size_t row = 0; row < logits.size() / spec.experts; ++row) {
    PlainGate plain(spec, logits.data() + row * spec.experts);
    const Choice expected = plain.Choose();
    // If two values were closer, rounding could decide the choice.
    ASSERT_GT(plain.narrowest(), 1e-6);
    const size_t begin = row * spec.top_k;
    ASSERT_EQ(Ids(ours.ids.begin() + begin, ours.ids.begin() + begin + spec.top_k), expected.ids);
    for (int s = 0; s < spec.top_k; ++s) {
      const float weight = ours.weights[begin + s];
      ASSERT_EQ(std::isnan(weight), std::isnan(expected.weights[s])) << s;
      if (std::isnan(weight)) continue;
      ASSERT_NEAR(weight, expected.weights[s], 1e-5 * std::fabs(expected.weights[s])) << s;
    }
  }
}

TEST(GateTest, AgreesWithAPlainGate) {
  ForBackends([](KernelBackend& backend) {
    Noise noise(7);
    int cases = 0;
    ForShapes([&](GateSpec spec) {
      for (const GateScore score :
           {GateScore::kSoftmax, GateScore::kSigmoid, GateScore::kSoftmaxOfChosen}) {
        for (int kind = 0; kind < 4; ++kind) {
          const std::vector<float> bias = BiasOf(&noise, spec.experts, kind);
          spec.score = score;
          spec.selection_bias = bias;
          spec.group_score = noise.Below(2) == 0 ? GroupScore::kMax : GroupScore::kSumOfTwo;
          spec.normalize = noise.Below(2) == 0;
          spec.normalize_epsilon = spec.normalize ? 1e-20f : 0;
          spec.scale = noise.Below(2) == 0 ? 1 : 2.5f;
          SCOPED_TRACE(testing::Message()
                       << spec.experts << " experts, " << spec.top_k << " chosen, " << spec.groups
                       << " groups, " << spec.groups_kept << " kept, score "
                       << static_cast<int>(score) << ", bias " << kind << ", group score "
                       << static_cast<int>(spec.group_score));
          CompareWithPlainGate(backend, spec,
                               FewValues(&noise, int64_t{3} * spec.experts, kind % 2 == 0 ? 0 : 9));
          ++cases;
        }
      }
    });
    EXPECT_GT(cases, 1000);
  });
}

// With only one group, group scores and group limits do not matter. They do not matter either if
// all experts are chosen.
TEST(GateTest, OneGroupDoesNotLimit) {
  ForBackends([](KernelBackend& backend) {
    Noise noise(3);
    const std::vector<float> logits = FewValues(&noise, 320, 20);
    const std::vector<float> bias = BiasOf(&noise, 8, 1);
    GateSpec spec = {
        .experts = 8, .top_k = 8, .score = GateScore::kSigmoid, .selection_bias = bias};
    const Choice all = Choose(backend, logits, spec);
    for (size_t row = 0; row < 40; ++row) {
      Ids sorted(all.ids.begin() + row * 8, all.ids.begin() + row * 8 + 8);
      std::sort(sorted.begin(), sorted.end());
      EXPECT_EQ(sorted, Ids({0, 1, 2, 3, 4, 5, 6, 7}));
    }
    spec.group_score = GroupScore::kSumOfTwo;
    EXPECT_EQ(Choose(backend, logits, spec).ids, all.ids);
    spec.groups = spec.groups_kept = 4;
    EXPECT_EQ(Choose(backend, logits, spec).ids, all.ids);
  });
}

TEST(GateDeathTest, ImpossibleSpecsAreCaught) {
  const auto backend = *MakeCpuBackend({});
  const std::vector<float> logits(6, 0);
  EXPECT_DEATH(Choose(*backend, logits, {.experts = 6, .top_k = 1, .groups = 4}),
               "6 experts in 4 groups");
  EXPECT_DEATH(Choose(*backend, logits, {.experts = 6, .top_k = 3, .groups = 3, .groups_kept = 1}),
               "top 3 of 2");
}

}  // namespace
}  // namespace tidepool::kernels
