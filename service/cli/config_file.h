// Reads a --config file into flags' names and values as a command line would give them.
// The file is TOML 1.0 (toml.io/en/v1.0.0, read by toml++) as far as flags go: keys at the top,
// each with a scalar or an array of scalars. The rest of TOML (tables, dotted keys, dates, arrays
// in arrays) is refused. Any bytes are read safely.
#ifndef TIDEPOOL_SERVICE_CLI_CONFIG_FILE_H_
#define TIDEPOOL_SERVICE_CLI_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

struct ConfigFileEntry {
  std::string key;
  // Of an array: each element. Numbers are decimal and without underscores.
  std::vector<std::string> values;
  int line = 0;
};

// In the order of the file's lines. NOT_FOUND or PERMISSION_DENIED when the file cannot be read;
// INVALID_ARGUMENT "FILE: line N: ..." when it holds anything else than the above, and when it is
// longer than 1 MiB.
absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(const std::string& path);

// The same of the file's content; `path` is for messages.
absl::StatusOr<std::vector<ConfigFileEntry>> ParseConfigFile(const std::string& path,
                                                             absl::string_view content);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CONFIG_FILE_H_
