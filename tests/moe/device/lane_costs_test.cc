#include "moe/device/lane_costs.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

constexpr int64_t kBytes = 2'600'000;

// Returns costs with these times for an expert with one row.
LaneCosts Measured(double copy_seconds, double host_seconds) {
  LaneCosts costs;
  for (int i = 0; i < 300; ++i) {
    costs.NoteCopy(kBytes, copy_seconds);
    costs.NoteHostWork(kBytes, kBytes, host_seconds);
  }
  return costs;
}

std::vector<LaneMiss> Misses(const std::vector<int64_t>& rows) {
  std::vector<LaneMiss> misses;
  for (const int64_t count : rows) {
    misses.push_back(
        {.expert = static_cast<int64_t>(misses.size()), .bytes = kBytes, .rows = count});
  }
  return misses;
}

TEST(LaneCostsTest, LearnsTheTimeOfACopy) {
  LaneCosts costs = Measured(50e-6, 80e-6);
  EXPECT_NEAR(costs.CopySeconds(kBytes), 50e-6, 1e-9);
  EXPECT_NEAR(costs.CopySeconds(2 * kBytes), 100e-6, 1e-9);
  EXPECT_NEAR(costs.CopyBytesPerSecond(), kBytes / 50e-6, 1e6);
  for (int i = 0; i < 500; ++i) costs.NoteCopy(kBytes, 25e-6);
  EXPECT_NEAR(costs.CopySeconds(kBytes), 25e-6, 1e-8);
}

// Measurements with several numbers of rows show both parts of the CPU's time.
TEST(LaneCostsTest, LearnsTheTimePerExpertAndPerRow) {
  LaneCosts costs;
  std::mt19937 random(3);
  for (int i = 0; i < 500; ++i) {
    const int64_t experts = 1 + random() % 8;
    int64_t rows = 0;
    for (int64_t e = 0; e < experts; ++e) rows += 1 + random() % 16;
    costs.NoteHostWork(experts * kBytes, rows * kBytes,
                       static_cast<double>(experts) * 60e-6 + static_cast<double>(rows) * 20e-6);
  }
  EXPECT_NEAR(costs.HostSeconds(kBytes, 1), 80e-6, 2e-6);
  EXPECT_NEAR(costs.HostSeconds(kBytes, 16), 380e-6, 5e-6);
}

TEST(LaneCostsTest, EstimatesAreNeverNegative) {
  std::mt19937 random(4);
  LaneCosts costs;
  for (int i = 0; i < 2000; ++i) {
    const int64_t experts = 1 + random() % 8;
    costs.NoteHostWork(experts * kBytes, experts * (1 + random() % 20) * kBytes,
                       static_cast<double>(random() % 1000) * 1e-6);
    EXPECT_GE(costs.HostSeconds(kBytes, 1), 0);
    EXPECT_GE(costs.HostSeconds(kBytes, 64), costs.HostSeconds(kBytes, 1));
  }
}

TEST(LaneCostsTest, BothLanesEndAtAboutTheSameTime) {
  LaneCosts costs = Measured(50e-6, 50e-6);
  std::vector<LaneMiss> misses = Misses({1, 1, 1, 1, 1, 1});
  EXPECT_EQ(costs.Split({.max_copies = 8}, &misses), 3u);
  // A copy costs as much as five experts on the CPU.
  costs = Measured(250e-6, 50e-6);
  misses = Misses({1, 1, 1, 1, 1, 1});
  EXPECT_EQ(costs.Split({.max_copies = 8}, &misses), 1u);
  misses = Misses({1, 1, 1, 1});
  EXPECT_EQ(costs.Split({.max_copies = 8}, &misses), 0u);
  costs = Measured(50e-6, 250e-6);
  misses = Misses({1, 1, 1, 1, 1, 1});
  EXPECT_EQ(costs.Split({.max_copies = 8}, &misses), 5u);
}

TEST(LaneCostsTest, NoOtherSplitEndsSooner) {
  std::mt19937 random(9);
  for (int trial = 0; trial < 500; ++trial) {
    LaneCosts costs = Measured(1e-6 * static_cast<double>(1 + random() % 300),
                               1e-6 * static_cast<double>(1 + random() % 300));
    std::vector<int64_t> rows(1 + random() % 10);
    for (int64_t& count : rows) count = 1 + random() % 3;
    std::vector<LaneMiss> misses = Misses(rows);
    const LaneLimits limits = {.seconds_ahead = 1e-6 * static_cast<double>(random() % 200),
                               .max_copies = random() % 12};
    const LaneCosts before = costs;
    const size_t chosen = costs.Split(limits, &misses);
    ASSERT_LE(chosen, std::min(limits.max_copies, misses.size()));
    const auto end = [&](size_t copies) {
      double host = 0;
      for (size_t i = copies; i < misses.size(); ++i) {
        host += before.HostSeconds(kBytes, misses[i].rows);
      }
      if (copies == 0) return host;
      return std::max(
          host, limits.seconds_ahead + static_cast<double>(copies) * before.CopySeconds(kBytes));
    };
    for (size_t copies = 0; copies <= std::min(limits.max_copies, misses.size()); ++copies) {
      EXPECT_LE(end(chosen), end(copies) + 1e-12);
    }
  }
}

TEST(LaneCostsTest, ManyRowsAreCopied) {
  LaneCosts costs;
  for (int i = 0; i < 300; ++i) {
    costs.NoteCopy(kBytes, 50e-6);
    costs.NoteHostWork(kBytes, kBytes * (1 + i % 8), 20e-6 + 10e-6 * (1 + i % 8));
  }
  std::vector<LaneMiss> misses = Misses({1, 64, 1, 32});
  ASSERT_EQ(costs.Split({.max_copies = 8}, &misses), 2u);
  EXPECT_EQ(misses[0].expert, 1);
  EXPECT_EQ(misses[1].expert, 3);
}

TEST(LaneCostsTest, PrefersToCopyExpertsThatAreKept) {
  LaneCosts costs = Measured(50e-6, 50e-6);
  std::vector<LaneMiss> misses = Misses({2, 1});
  misses[1].is_kept = true;
  ASSERT_EQ(costs.Split({.max_copies = 8}, &misses), 1u);
  EXPECT_EQ(misses[0].expert, 1);
}

TEST(LaneCostsTest, ADelayedCopyLaneGetsLess) {
  LaneCosts costs = Measured(50e-6, 50e-6);
  std::vector<LaneMiss> misses = Misses({1, 1, 1, 1});
  EXPECT_EQ(costs.Split({.seconds_ahead = 300e-6, .max_copies = 8}, &misses), 0u);
  EXPECT_EQ(costs.Split({.seconds_ahead = 100e-6, .max_copies = 8}, &misses), 1u);
  EXPECT_FALSE(costs.MayCopyForLater(kBytes, 300e-6));
  EXPECT_TRUE(costs.MayCopyForLater(kBytes, 100e-6));
}

TEST(LaneCostsTest, WithoutFreeBuffersNothingIsCopied) {
  LaneCosts costs = Measured(1e-6, 50e-6);
  std::vector<LaneMiss> misses = Misses({1, 1});
  EXPECT_EQ(costs.Split({.max_copies = 0}, &misses), 0u);
}

// Both lanes are tried before they were measured.
TEST(LaneCostsTest, TriesLanesThatWereNotMeasured) {
  LaneCosts costs;
  std::vector<LaneMiss> misses = Misses({1, 1});
  EXPECT_EQ(costs.Split({.max_copies = 8}, &misses), 0u);
  costs.NoteHostWork(2 * kBytes, 2 * kBytes, 100e-6);
  EXPECT_EQ(costs.Split({.max_copies = 8}, &misses), 2u);
}

// If a lane once seemed slow, for example because another program used the CPU, it is tried again.
TEST(LaneCostsTest, TriesALaneAgainThatSeemedSlow) {
  LaneCosts costs = Measured(50e-6, 500e-6);
  std::vector<LaneMiss> misses = Misses({1});
  int layers = 0;
  while (costs.Split({.max_copies = 8}, &misses) == 1 && layers < 100'000) ++layers;
  EXPECT_GT(layers, 1000);
  EXPECT_LT(layers, 10'000);
  // A new measurement restores the estimate.
  costs.NoteHostWork(kBytes, kBytes, 500e-6);
  EXPECT_NEAR(costs.HostSeconds(kBytes, 1), 500e-6, 1e-6);
  EXPECT_EQ(costs.Split({.max_copies = 8}, &misses), 1u);
}

}  // namespace
}  // namespace tidepool::moe
