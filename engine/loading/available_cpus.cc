#include "engine/loading/available_cpus.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "engine/loading/cgroups.h"

namespace tidepool::engine {
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int AffinityCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

double Ratio(absl::string_view quota, absl::string_view period) {
  int64_t quota_us = 0;
  int64_t period_us = 0;
  if (!absl::SimpleAtoi(quota, &quota_us) || !absl::SimpleAtoi(period, &period_us)) return kNoQuota;
  if (quota_us <= 0 || period_us <= 0) return kNoQuota;
  return static_cast<double>(quota_us) / static_cast<double>(period_us);
}

// cpu.max has the form "QUOTA PERIOD" in microseconds, or "max PERIOD".
double QuotaV2(const std::string& folder) {
  const std::vector<std::string> parts = absl::StrSplit(FirstLine(folder + "/cpu.max"), ' ');
  return parts.size() == 2 ? Ratio(parts[0], parts[1]) : kNoQuota;
}

double QuotaV1(const std::string& folder) {
  return Ratio(FirstLine(folder + "/cpu.cfs_quota_us"), FirstLine(folder + "/cpu.cfs_period_us"));
}

double CgroupCpus(const std::string& root) {
  double least = kNoQuota;
  for (const CgroupFolder& group : CgroupFolders("cpu", root)) {
    least = std::min(
        least, group.version == CgroupVersion::kV2 ? QuotaV2(group.path) : QuotaV1(group.path));
  }
  return least;
}

}  // namespace

int AvailableCpus(const std::string& root) {
  const int affinity = std::max(1, AffinityCpus());
  const double quota = CgroupCpus(root);
  if (quota >= affinity) return affinity;
  return std::max(1, static_cast<int>(std::ceil(quota)));
}

}  // namespace tidepool::engine
