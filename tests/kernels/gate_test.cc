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

// With scores of single experts, a NaN is chosen only after all numbers.
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
    // Selection scores: -2, 1, 0, 0.75, then all negative.
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
  // Three groups of two, with sigmoids 0.5 and more.
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
    // The sum of a group with a NaN is NaN: below negative ones.
    EXPECT_EQ(Choose(backend, {NAN, 90, -3, -4, -5, -6}, spec).ids, Ids({2, 3}));
    // The largest number of a group with a NaN counts.
    spec.group_score = GroupScore::kMax;
    EXPECT_EQ(Choose(backend, {NAN, 90, -3, -4, -5, -6}, spec).ids, Ids({1, 2}));
    // Groups of one.
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
