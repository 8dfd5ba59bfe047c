#include "service/cli/machine.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace tidepool::service {
namespace {

// Uses folders in place of /proc and /sys.
class AvailableMemoryTest : public ::testing::Test {
 protected:
  AvailableMemoryTest()
      : root_(absl::StrCat(::testing::TempDir(), "/",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    Write("/proc/meminfo",
          "MemTotal:       9000 kB\nMemFree:        1000 kB\nMemAvailable:   4000 kB\n");
  }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path full = root_ + path;
    std::filesystem::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  const std::string root_;
};

TEST_F(AvailableMemoryTest, WithoutGroupsItIsTheMachines) {
  EXPECT_EQ(AvailableMemoryBytes(root_), 4000 * 1024);
}

TEST_F(AvailableMemoryTest, UnknownMemoryDiffersFromNone) {
  Write("/proc/meminfo", "MemTotal:       9000 kB\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), std::nullopt);
  Write("/proc/meminfo", "MemAvailable:   0 kB\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 0);
}

TEST_F(AvailableMemoryTest, TheTightestGroupAboveCounts) {
  Write("/proc/self/cgroup", "0::/outer/inner\n");
  Write("/sys/fs/cgroup/outer/memory.max", "3000000\n");
  Write("/sys/fs/cgroup/outer/memory.current", "1000000\n");
  Write("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
  Write("/sys/fs/cgroup/outer/inner/memory.current", "900000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 2000000);
}

TEST_F(AvailableMemoryTest, WhereAGroupIsThrottledItIsFull) {
  Write("/proc/self/cgroup", "0::/box\n");
  Write("/sys/fs/cgroup/box/memory.max", "max\n");
  Write("/sys/fs/cgroup/box/memory.high", "2000000\n");
  Write("/sys/fs/cgroup/box/memory.current", "500000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1500000);
  Write("/sys/fs/cgroup/box/memory.max", "3000000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1500000);
  Write("/sys/fs/cgroup/box/memory.high", "max\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 2500000);
}

TEST_F(AvailableMemoryTest, AContainerSeesItsGroupAtTheTop) {
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/memory.max", "1000000\n");
  Write("/sys/fs/cgroup/memory.current", "1500000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 0);
}

TEST_F(AvailableMemoryTest, IdlePageCacheIsNotTaken) {
  Write("/proc/self/cgroup", "0::/box\n");
  Write("/sys/fs/cgroup/box/memory.max", "3000000\n");
  Write("/sys/fs/cgroup/box/memory.current", "2900000\n");
  Write("/sys/fs/cgroup/box/memory.stat",
        "anon 500000\nfile 2400000\nactive_file 400000\ninactive_file 2000000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 2100000);
  // The inactive files are larger than the counted usage. This can happen for a moment.
  Write("/sys/fs/cgroup/box/memory.stat", "inactive_file 2950000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 3000000);
}

TEST_F(AvailableMemoryTest, OldGroupsCountTheCacheOfThoseBelow) {
  Write("/proc/self/cgroup", "4:hugetlb,memory:/x\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2000000\n");
  Write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "1900000\n");
  Write("/sys/fs/cgroup/memory/x/memory.stat", "inactive_file 100\ntotal_inactive_file 1000000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1100000);
}

TEST_F(AvailableMemoryTest, OldGroups) {
  Write("/proc/self/cgroup", "5:cpu:/x\n4:memory:/x\n");
  Write("/sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2000000\n");
  Write("/sys/fs/cgroup/memory/x/memory.usage_in_bytes", "500000\n");
  EXPECT_EQ(AvailableMemoryBytes(root_), 1500000);
}

TEST_F(AvailableMemoryTest, ProcessorAndPeakComeFromProc) {
  EXPECT_EQ(ProcessorName(root_), "unknown processor");
  EXPECT_EQ(PeakResidentBytes(root_), 0);
  Write("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Some CPU @ 2 GHz\nmodel name : Other\n");
  Write("/proc/self/status", "Name:\tx\nVmPeak:\t 900 kB\nVmHWM:\t     512 kB\n");
  EXPECT_EQ(ProcessorName(root_), "Some CPU @ 2 GHz");
  EXPECT_EQ(PeakResidentBytes(root_), 512 * 1024);
  EXPECT_GT(PeakResidentBytes(), 1 << 20);
}

}  // namespace
}  // namespace tidepool::service
