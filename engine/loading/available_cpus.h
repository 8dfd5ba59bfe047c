// How many threads are worth starting here.
#ifndef TIDEPOOL_ENGINE_LOADING_AVAILABLE_CPUS_H_
#define TIDEPOOL_ENGINE_LOADING_AVAILABLE_CPUS_H_

#include <string>

namespace tidepool::engine {

// CPUs that this process may use: the lesser of its affinity mask and the quota of the cgroups (v2
// cpu.max, v1 cpu.cfs_quota_us) above it, rounded up; at least 1. `root` stands in front of /proc
// and /sys, for tests.
int AvailableCpus(const std::string& root = "");

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_LOADING_AVAILABLE_CPUS_H_
