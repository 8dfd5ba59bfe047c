#include "engine/loading/available_cpus.h"

#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace tidepool::engine {
namespace {

// Uses fake /proc and /sys folders.
class AvailableCpusTest : public testing::Test {
 protected:
  AvailableCpusTest()
      : root_(testing::TempDir() + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
    cpu_set_t set;
    CPU_ZERO(&set);
    EXPECT_EQ(sched_getaffinity(0, sizeof(set), &set), 0);
    affinity_ = CPU_COUNT(&set);
  }

  void Write(const std::string& path, const std::string& text) {
    const std::string whole = root_ + path;
    std::filesystem::create_directories(whole.substr(0, whole.rfind('/')));
    std::ofstream(whole) << text;
  }

  std::string root_;
  int affinity_ = 0;
};

TEST_F(AvailableCpusTest, WithoutCgroupsTheAffinityCounts) {
  EXPECT_EQ(AvailableCpus(root_), affinity_);
}

TEST_F(AvailableCpusTest, HereItIsAtLeastOne) {
  EXPECT_GE(AvailableCpus(), 1);
  EXPECT_LE(AvailableCpus(), affinity_);
}

TEST_F(AvailableCpusTest, AQuotaIsRoundedUp) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "20000 100000\n");
  EXPECT_EQ(AvailableCpus(root_), 1);
  Write("/sys/fs/cgroup/cpu.max", "100001 100000\n");
  EXPECT_EQ(AvailableCpus(root_), std::min(2, affinity_));
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(AvailableCpus(root_), affinity_);
}

TEST_F(AvailableCpusTest, TheTightestGroupAboveCounts) {
  Write("/proc/self/cgroup", "0::/kube/pod/box\n");
  Write("/sys/fs/cgroup/kube/pod/box/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/kube/pod/cpu.max", "50000 100000\n");
  Write("/sys/fs/cgroup/kube/cpu.max", "9900000 100000\n");
  EXPECT_EQ(AvailableCpus(root_), 1);
}

TEST_F(AvailableCpusTest, VersionOneCounts) {
  Write("/proc/self/cgroup", "5:memory:/box\n4:cpu,cpuacct:/box\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "100000\n");
  Write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(AvailableCpus(root_), 1);
  Write("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(AvailableCpus(root_), affinity_);
}

TEST_F(AvailableCpusTest, InvalidQuotasAreIgnored) {
  Write("/proc/self/cgroup", "no colons\n0::relative\n:::\n0::/\n");
  for (const char* text : {"", "abc def\n", "5\n", "-3 100000\n", "100 0\n", "1 2 3\n"}) {
    Write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(AvailableCpus(root_), affinity_) << text;
  }
}

}  // namespace
}  // namespace tidepool::engine
