#include "moe/policy/logistic_model.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "moe/policy/vec4.h"

namespace tidepool::moe {
namespace {

TEST(Vec4Test, LogAndExpAreWithinTheirBounds) {
  for (float x = 1e-30f; x < 1e30f; x *= 1.37f) {
    EXPECT_NEAR(Log4(Vec4{} + x)[2], std::log2(x), 1e-5 + 1e-6 * std::abs(std::log2(x))) << x;
  }
  for (float x = -20; x < 20; x += 0.173f) {
    EXPECT_NEAR(Exp4(Vec4{} + x)[1] / std::exp2(x), 1, 1e-6) << x;
  }
}

// The outcomes follow a logistic model with known weights. Two features are almost equal.
TEST(LogisticModelTest, LearnsTheChances) {
  constexpr int kCount = 37;
  constexpr int kStride = 40;
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> uniform;
  // Half of the weight is forgotten in 700 steps.
  LogisticModel model({0, 0, 0, 0}, 2, 0.999);
  std::vector<float> values(4 * kStride);
  std::vector<float> outcomes(kCount);
  std::vector<float> chances(kCount);
  std::vector<float> truth(kCount);
  const auto draw = [&] {
    for (int i = 0; i < kCount; ++i) {
      values[i] = normal(random);
      values[kStride + i] = values[i] + 0.01f * normal(random);
      values[2 * kStride + i] = normal(random);
      values[3 * kStride + i] = 1;
      truth[i] = 1 / (1 + std::exp(2 - 1.5f * values[i] + 0.5f * values[2 * kStride + i]));
      outcomes[i] = uniform(random) < truth[i] ? 1.0f : 0.0f;
    }
  };
  const std::vector<int> begins = {0, 10, kCount};
  const Samples samples{values.data(), kStride, begins};
  for (int step = 0; step < 1000; ++step) {
    draw();
    model.weights().Predict(samples, chances.data());
    model.Learn(samples, outcomes.data(), chances.data());
  }
  double error = 0;
  for (int step = 0; step < 20; ++step) {
    draw();
    model.weights().Predict(samples, chances.data());
    for (int i = 0; i < kCount; ++i) error += std::abs(chances[i] - truth[i]) / (20 * kCount);
  }
  // Without learning, the error is 0.3.
  EXPECT_LT(error, 0.02);
}

TEST(LogisticModelTest, DoesNotReadPastItsSamples) {
  // The value after the last sample must have no effect.
  std::vector<float> values = {1, 1, 1, 1000, 1, 1, 1, 1, 1, 1};
  const std::vector<int> begins = {0, 3};
  const Samples samples{values.data(), 10, begins};
  LogisticModel model({0}, 1, 1);
  LogisticModel other({0}, 1, 1);
  std::vector<float> outcomes = {1, 0, 1};
  std::vector<float> chances(3);
  model.weights().Predict(samples, chances.data());
  model.Learn(samples, outcomes.data(), chances.data());
  values[3] = 1;
  other.Learn(samples, outcomes.data(), chances.data());
  std::vector<float> first(3);
  std::vector<float> second(3);
  model.weights().Predict(samples, first.data());
  other.weights().Predict(samples, second.data());
  EXPECT_EQ(first, second);
  EXPECT_GT(first[0], 0.5f);
}

TEST(LogisticModelTest, AGroupWithoutSamplesUsesTheSharedWeights) {
  // The constant feature: group 0 is used in 3 of 4 samples, group 1 in 1 of 4, group 2 never seen.
  const std::vector<float> values(12, 1);
  const std::vector<float> outcomes = {1, 1, 1, 0, 1, 0, 0, 0};
  const std::vector<int> begins = {0, 4, 8, 8};
  LogisticModel model({1}, 3, 1);
  std::vector<float> chances(8);
  const Samples samples{values.data(), 12, begins};
  for (int step = 0; step < 2000; ++step) {
    model.weights().Predict(samples, chances.data());
    model.Learn(samples, outcomes.data(), chances.data());
  }
  EXPECT_NEAR(chances[0], 0.75, 0.05);
  EXPECT_NEAR(chances[4], 0.25, 0.05);
  const std::vector<int> unseen = {0, 0, 0, 1};
  float chance = 0;
  model.weights().Predict({values.data(), 12, unseen}, &chance);
  // The mean of the others, not the initial 0.73.
  EXPECT_NEAR(chance, 0.5, 0.1);
}

}  // namespace
}  // namespace tidepool::moe
