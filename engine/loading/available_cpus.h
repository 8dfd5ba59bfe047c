// AvailableCpus: the number of CPUs that this process may use.
#ifndef TIDEPOOL_ENGINE_LOADING_AVAILABLE_CPUS_H_
#define TIDEPOOL_ENGINE_LOADING_AVAILABLE_CPUS_H_

#include <string>

namespace tidepool::engine {

// Returns the number of CPUs that this process may use. It is limited by the affinity mask and by
// the quotas of the process's cgroups (v2 cpu.max, v1 cpu.cfs_quota_us). A quota is rounded up. The
// result is at least 1. Tests set `root`, a prefix of /proc and /sys.
int AvailableCpus(const std::string& root = "");

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_AVAILABLE_CPUS_H_
