#include "engine/sampling/weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

namespace tidepool::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(size_t size, std::mt19937* random) {
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(*random);
  return logits;
}

// Returns what FindBest must return.
kernels::ArgMax BestByLoop(const std::vector<float>& logits) {
  kernels::ArgMax best;
  best.value = -kInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!(logits[i] < kInfinity) && best.unsound < 0) best.unsound = static_cast<int32_t>(i);
    if (!(logits[i] > best.value)) continue;
    best.value = logits[i];
    best.index = static_cast<int32_t>(i);
  }
  return best;
}

TEST(WeightsTest, FindsTheBestAndTheFirstUnsoundValue) {
  std::mt19937 random(1);
  for (size_t size = 1; size < 200; ++size) {
    std::vector<float> logits = RandomLogits(size, &random);
    for (const float value : {0.0f, 100.0f, 100.0f, -kInfinity, std::nanf(""), kInfinity}) {
      logits[random() % size] = value;
      const kernels::ArgMax best = FindBest(logits);
      const kernels::ArgMax expected = BestByLoop(logits);
      ASSERT_EQ(best.index, expected.index) << size << " " << value;
      ASSERT_EQ(best.value, expected.value) << size << " " << value;
      ASSERT_EQ(best.unsound, expected.unsound) << size << " " << value;
    }
  }
  for (const size_t size : {1, 64, 100}) {
    EXPECT_EQ(FindBest(std::vector<float>(size, -kInfinity)).index, -1);
    EXPECT_EQ(FindBest(std::vector<float>(size, std::nanf(""))).index, -1);
  }
}

TEST(WeightsTest, AreExponentials) {
  std::vector<float> logits;
  for (int i = 0; i <= 90'000; ++i) logits.push_back(static_cast<float>(-i) / 1000);
  std::vector<float> memory;
  for (const float temperature : {1.0f, 0.3f, 1.7f}) {
    const absl::Span<const float> weights = ComputeWeights(logits, 0, temperature, &memory);
    for (size_t i = 0; i < logits.size(); ++i) {
      const float x = logits[i] / temperature;
      const double expected = x < -87 ? 0 : std::exp(static_cast<double>(x));
      ASSERT_NEAR(weights[i], expected, expected * 3 * 0x1p-23) << x;
    }
  }
  const std::vector<float> extremes = {-kInfinity, 3, -1e30f};
  EXPECT_EQ(ComputeWeights(extremes, 3, 1e-30f, &memory), (std::vector<float>{0, 1, 0}));
}

// Values that are computed in vectors of any size have the same bits.
TEST(WeightsTest, DoNotDependOnTheirNeighbours) {
  std::mt19937 random(2);
  for (size_t size = 1; size < 40; ++size) {
    const std::vector<float> logits = RandomLogits(size, &random);
    const float best = *std::max_element(logits.begin(), logits.end());
    std::vector<float> memory, memory_of_one;
    const absl::Span<const float> weights = ComputeWeights(logits, best, 0.7f, &memory);
    ASSERT_EQ(weights.size(), size);
    for (size_t i = 0; i < size; ++i) {
      const float alone = ComputeWeights({&logits[i], 1}, best, 0.7f, &memory_of_one)[0];
      ASSERT_EQ(alone, weights[i]) << size << " " << i;
    }
  }
}

TEST(WeightsTest, DrawsTheWeightAtAShareOfTheSum) {
  std::mt19937 random(3);
  std::vector<double> scratch;
  for (const size_t size : {1, 2, 63, 64, 65, 128, 1000, 5003}) {
    std::vector<float> weights(size);
    for (float& weight : weights) {
      weight = random() % 3 == 0 ? 0 : static_cast<float>(random() % 97);
    }
    weights[random() % size] = 1;
    double sum = 0;
    for (const float weight : weights) sum += weight;
    ASSERT_EQ(SumWeights(weights), sum);  // all sums of these integers are exact
    for (int draw = 0; draw < 200; ++draw) {
      const double share = static_cast<double>(random()) / 0x1p32;
      const size_t index = DrawIndex(weights, share, &scratch);
      double before = 0;
      for (size_t i = 0; i < index; ++i) before += weights[i];
      ASSERT_LE(before, share * sum);
      ASSERT_GT(before + weights[index], share * sum);
    }
  }
}

TEST(WeightsTest, NeverDrawsAWeightOfZero) {
  std::vector<double> scratch;
  const double last = 1 - 0x1p-53;
  for (const size_t size : {1, 64, 65, 300}) {
    for (size_t at = 0; at < size; ++at) {
      std::vector<float> weights(size);
      weights[at] = 0.1f;
      for (const double share : {0.0, 0.5, last}) {
        ASSERT_EQ(DrawIndex(weights, share, &scratch), at) << size << " " << share;
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::engine
