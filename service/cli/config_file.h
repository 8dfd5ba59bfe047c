// Reads a --config file into flag names and values, as on a command line. The file uses a part of
// TOML 1.0 (toml.io/en/v1.0.0, parsed by toml++): top-level keys, each with a scalar or an array of
// scalars. Tables, dotted keys, dates and nested arrays are refused. It is safe to parse untrusted
// bytes.
#ifndef TIDEPOOL_SERVICE_CLI_CONFIG_FILE_H_
#define TIDEPOOL_SERVICE_CLI_CONFIG_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

struct ConfigFileEntry {
  std::string key;
  // The value, or the elements of an array. Numbers are decimal and have no underscores.
  std::vector<std::string> values;
  int line = 0;
};

// Returns the entries in the order of the file's lines. NOT_FOUND or PERMISSION_DENIED if the file
// cannot be read. INVALID_ARGUMENT "FILE: line N: ..." if the file contains anything that is not
// described above, or is longer than 1 MiB.
absl::StatusOr<std::vector<ConfigFileEntry>> ReadConfigFile(const std::string& path);

// Parses the content of a file. `path` is used in messages only.
absl::StatusOr<std::vector<ConfigFileEntry>> ParseConfigFile(const std::string& path,
                                                             absl::string_view content);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CONFIG_FILE_H_
