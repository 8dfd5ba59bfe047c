// Reads a --config file into flags' names and values as a command line would give them.
#ifndef TIDEPOOL_SERVICE_CLI_CONFIG_FILE_H_
#define TIDEPOOL_SERVICE_CLI_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tidepool::service {

struct ConfigFileEntry {
  std::string key;
  std::vector<std::string> values;  // of an array: each element
  int line = 0;
};

// In the order of the file's lines. NOT_FOUND or PERMISSION_DENIED when the file cannot be read;
// INVALID_ARGUMENT "FILE: line N: ..." when it is not TOML or holds more than scalars and arrays of
// them.
absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(const std::string& path);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CONFIG_FILE_H_
