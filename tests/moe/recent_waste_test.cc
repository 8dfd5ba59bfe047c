// RecentWaste's control of prefetch, with guesses that are right with some probability.
#include <cstdint>
#include <deque>
#include <random>

#include "gtest/gtest.h"
#include "moe/expert_prefetcher.h"

namespace tidepool::moe {
namespace {

constexpr int64_t kRecord = 4096;
constexpr int64_t kWindow = RecentWaste::kWindowRecords;
constexpr int kGuesses = 4;  // maximum number of guesses in flight

struct Counts {
  int64_t read = 0;  // records
  int64_t wasted = 0;
  int64_t layers = 0;
  int64_t guessed = 0;  // layers for which something was read ahead

  double waste() const { return static_cast<double>(wasted) / static_cast<double>(read); }
};

class Disk {
 public:
  explicit Disk(uint32_t seed) : random_(seed) {}

  // Simulates layers that each need six records. Up to four are read ahead while prefetch is on,
  // each with probability `right` of being needed. Ends after `records` records were read.
  Counts Read(int64_t records, double right) {
    Counts counts;
    while (counts.read < records) Layer(right, &counts);
    return counts;
  }

 private:
  void Layer(double right, Counts* counts) {
    ++counts->layers;
    int needed = 6;
    if (!waste_.IsTooMuch()) {
      ++counts->guessed;
      for (int guess = 0; guess < kGuesses; ++guess, ++counts->read) {
        if (std::uniform_real_distribution<double>()(random_) < right) {
          waste_.AddUsed(kRecord);
          --needed;
        } else {
          waste_.AddWasted(kRecord);
          ++counts->wasted;
        }
      }
    }
    for (; needed > 0; --needed, ++counts->read) waste_.AddUsed(kRecord);
  }

  std::mt19937 random_;
  RecentWaste waste_{kRecord};
};

// Many successes in the past do not matter. With totals since the start, four of ten reads could be
// wasted.
TEST(RecentWasteTest, DetectsHintsThatBecomeWrong) {
  Disk disk(1);
  const Counts good = disk.Read(1000 * kWindow, 1);
  EXPECT_EQ(good.guessed, good.layers);
  const Counts bad = disk.Read(16 * kWindow, 0);
  EXPECT_GT(bad.wasted, 0);
  EXPECT_LE(bad.waste(), 0.1);
}

TEST(RecentWasteTest, ResumesWhenHintsBecomeRight) {
  Disk disk(2);
  const Counts bad = disk.Read(1000 * kWindow, 0);
  EXPECT_LE(bad.waste(), 0.085);
  EXPECT_LT(bad.guessed * 4, bad.layers);
  const Counts good = disk.Read(4 * kWindow, 1);
  EXPECT_GE(good.guessed * 100, good.layers * 95);
}

// With an average waste of 6 %, prefetch stays on.
TEST(RecentWasteTest, StaysOnWithAnAverageWasteBelowTheLimit) {
  for (uint32_t seed = 1; seed <= 5; ++seed) {
    const Counts counts = Disk(seed).Read(200 * kWindow, 0.905);
    EXPECT_NEAR(counts.waste(), 0.06, 0.004);
    EXPECT_GE(counts.guessed * 100, counts.layers * 99) << "seed " << seed;
  }
}

// This is true for any sixteen consecutive windows, while the quality of guesses changes.
TEST(RecentWasteTest, WastesAtMostATenthInAnySixteenWindows) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Disk disk(seed);
    std::deque<Counts> parts;
    Counts sum;
    for (int part = 0; part < 400; ++part) {
      const double right = random() % 2 == 0 ? 1.0 : static_cast<double>(random() % 100) / 100;
      parts.push_back(disk.Read(kWindow * (1 + random() % 8) / 4, right));
      sum.read += parts.back().read;
      sum.wasted += parts.back().wasted;
      while (sum.read - parts.front().read >= 16 * kWindow) {
        sum.read -= parts.front().read;
        sum.wasted -= parts.front().wasted;
        parts.pop_front();
      }
      if (sum.read < 16 * kWindow) continue;
      ASSERT_LE(sum.waste(), 0.1) << "seed " << seed << ", part " << part;
    }
  }
}

}  // namespace
}  // namespace tidepool::moe
