// What this machine, or the container around this process, is and has to give.
#ifndef TIDEPOOL_SERVICE_CLI_MACHINE_H_
#define TIDEPOOL_SERVICE_CLI_MACHINE_H_

#include <cstdint>
#include <optional>
#include <string>

namespace tidepool::service {

// Bytes that this process may still take: the least of MemAvailable and what the cgroups (v2 or v1)
// above it leave, page cache that is idle aside; 0 where nothing is left, none where it cannot be
// told. `root` stands in front of /proc and /sys, for tests.
std::optional<int64_t> AvailableMemoryBytes(const std::string& root = "");

// The processor as it names itself, such as "AMD EPYC 9R14"; "unknown processor" where
// /proc/cpuinfo does not say.
std::string ProcessorName(const std::string& root = "");

// The most bytes that this process has had resident so far; 0: cannot be told.
int64_t PeakResidentBytes(const std::string& root = "");

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_MACHINE_H_
