// Checks of the statistics of offloaded experts that must succeed at any time.
#ifndef TIDEPOOL_TESTS_MOE_TIER_CHECKS_H_
#define TIDEPOOL_TESTS_MOE_TIER_CHECKS_H_

#include "gtest/gtest.h"
#include "moe/offload_stats.h"
#include "moe/replay/replay.h"

namespace tidepool::moe {

// Expects that each tier stays within its memory.
inline void ExpectMemoryHolds(const OffloadStats& stats) {
  EXPECT_EQ(stats.capacity_bytes, (stats.slots + stats.staging) * stats.record_bytes);
  EXPECT_LE(stats.resident_bytes, stats.capacity_bytes);
  if (!stats.host.has_value()) return;
  const HostTierStats& host = *stats.host;
  EXPECT_EQ(host.capacity_bytes, (host.slots + host.staging) * stats.record_bytes);
  EXPECT_LE(host.resident_bytes, host.capacity_bytes);
}

// Expects that each miss of a device was a copy, a prefetched copy or work of the CPU. Also expects
// that the host tier saw all misses that were not prefetched.
inline void ExpectMissesAddUp(const OffloadStats& stats) {
  ASSERT_TRUE(stats.host.has_value());
  const HostTierStats& host = *stats.host;
  EXPECT_EQ(host.copied + host.copied_ahead + host.computed_on_cpu, stats.placement.misses());
  EXPECT_EQ(host.placement.lookups() + host.copied_ahead, stats.placement.misses());
}

// Expects the lookups of a replay of a device's trace. Hits and misses depend on which copies to
// the device are too slow to be made.
inline void ExpectSameLookups(const ReplayResult& replayed, const OffloadStats& stats) {
  EXPECT_EQ(stats.placement.lookups(), replayed.counters.lookups());
  ExpectMissesAddUp(stats);
}

}  // namespace tidepool::moe

#endif  // TIDEPOOL_TESTS_MOE_TIER_CHECKS_H_
