#include "moe/offload_stats.h"

#include "gtest/gtest.h"

namespace tidepool::moe {
namespace {

OffloadStats At(int64_t hits) {
  OffloadStats stats;
  stats.slots = 7;
  stats.placement.hits = hits;
  stats.demand_bytes = 10 * hits;
  stats.stall_time = absl::Milliseconds(hits);
  return stats;
}

TEST(OffloadWindowTest, IsEmptyWithoutReadings) {
  OffloadWindow window;
  EXPECT_EQ(window.length(), absl::ZeroDuration());
  EXPECT_EQ(window.recent().placement.hits, 0);
  window.Add(absl::Seconds(100), At(50));
  EXPECT_EQ(window.length(), absl::ZeroDuration());
  EXPECT_EQ(window.recent().placement.hits, 0);
  EXPECT_EQ(window.recent().slots, 7);
}

TEST(OffloadWindowTest, CoversTheLatestTenSeconds) {
  OffloadWindow window;
  // A hit each 10 ms.
  for (int64_t i = 0; i <= 6000; ++i) window.Add(absl::Milliseconds(10 * i), At(i));
  EXPECT_GE(window.length(), absl::Seconds(9));
  EXPECT_LE(window.length(), absl::Seconds(12));
  const OffloadStats recent = window.recent();
  EXPECT_EQ(recent.placement.hits, window.length() / absl::Milliseconds(10));
  EXPECT_EQ(recent.demand_bytes, 10 * recent.placement.hits);
  EXPECT_EQ(recent.stall_time, absl::Milliseconds(recent.placement.hits));
}

// If readings are far apart, the interval is longer, but includes everything since.
TEST(OffloadWindowTest, IsLongerIfReadingsAreFarApart) {
  OffloadWindow window;
  window.Add(absl::Seconds(1), At(1));
  window.Add(absl::Seconds(50), At(4));
  EXPECT_EQ(window.length(), absl::Seconds(49));
  EXPECT_EQ(window.recent().placement.hits, 3);
  window.Add(absl::Seconds(70), At(9));
  EXPECT_EQ(window.recent().placement.hits, 5);
}

// If nothing changed during a pause, the interval begins at the pause's end.
TEST(OffloadWindowTest, ExcludesALongIdlePause) {
  OffloadWindow window;
  for (int64_t i = 0; i <= 20; ++i) window.Add(absl::Seconds(i), At(i));
  window.Add(absl::Seconds(100), At(20));
  EXPECT_EQ(window.length(), OffloadWindow::kLength);
  EXPECT_EQ(window.recent().placement.hits, 0);
  window.Add(absl::Seconds(104), At(26));
  EXPECT_EQ(window.length(), OffloadWindow::kLength);
  EXPECT_EQ(window.recent().placement.hits, 6);
  window.Add(absl::Seconds(108), At(28));
  EXPECT_EQ(window.length(), OffloadWindow::kLength);
  EXPECT_EQ(window.recent().placement.hits, 8);
  // A pause shorter than the interval is part of it.
  window.Add(absl::Seconds(113), At(28));
  EXPECT_EQ(window.recent().placement.hits, 8);
}

TEST(UseWindowTest, ExcludesALongIdlePause) {
  UseWindow window;
  for (int64_t i = 0; i <= 20; ++i) window.Add(absl::Seconds(i), {i, 7});
  EXPECT_EQ(window.Recent({20, 7}), (std::vector<int64_t>{10, 0}));
  EXPECT_EQ(window.Length(absl::Seconds(20)), OffloadWindow::kLength);
  window.Add(absl::Seconds(100), {20, 7});
  window.Add(absl::Seconds(103), {22, 8});
  EXPECT_EQ(window.Recent({22, 8}), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(window.Length(absl::Seconds(103)), OffloadWindow::kLength);
}

}  // namespace
}  // namespace tidepool::moe
