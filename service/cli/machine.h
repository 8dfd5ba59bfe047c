// Facts about this machine, or about the container that this process runs in.
#ifndef TIDEPOOL_SERVICE_CLI_MACHINE_H_
#define TIDEPOOL_SERVICE_CLI_MACHINE_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tidepool::service {

// Bytes that this process can still allocate: the minimum of MemAvailable and of the free memory in
// each cgroup (v1 or v2) that contains the process. Inactive page cache counts as free. 0 if
// nothing is free, nullopt if unknown. Tests set `root`, a prefix of /proc and /sys.
std::optional<int64_t> AvailableMemoryBytes(const std::string& root = "");

// The CPU model from /proc/cpuinfo, such as "AMD EPYC 9R14", or "unknown processor".
std::string ProcessorName(const std::string& root = "");

// The peak resident bytes of this process. 0 if unknown.
int64_t PeakResidentBytes(const std::string& root = "");

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_MACHINE_H_
