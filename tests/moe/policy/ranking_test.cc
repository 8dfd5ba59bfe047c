#include "moe/policy/ranking.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

constexpr PoolShape kShape{.layers = 4, .experts = 10, .top_k = 2, .slots = 40};

// There are only a few different values, so most comparisons are ties.
TEST(LeastValuableTest, TheOrderOfLayersDoesNotMatter) {
  Residency residency(kShape);
  for (int64_t index = 0; index < kShape.all_experts(); ++index) {
    residency.Insert(residency.At(index));
  }
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> values(kShape.all_experts());
    for (float& value : values) value = static_cast<float>(random() % (1 + round % 4));
    const auto count = static_cast<int64_t>(1 + random() % 12);
    std::vector<int64_t> all(values.size());
    std::iota(all.begin(), all.end(), 0);
    std::stable_sort(all.begin(), all.end(), [&](auto a, auto b) { return values[a] < values[b]; });
    all.resize(count);
    std::vector<int> layers(kShape.layers);
    std::iota(layers.begin(), layers.end(), 0);
    std::shuffle(layers.begin(), layers.end(), random);
    LeastValuable<float> least(count);
    for (const int layer : layers) least.Add(residency, values, layer);
    std::vector<int64_t> found;
    for (const Ranked<float>& ranked : least.Take()) found.push_back(ranked.index);
    EXPECT_EQ(found, all) << round;
  }
}

}  // namespace
}  // namespace tidepool::moe
