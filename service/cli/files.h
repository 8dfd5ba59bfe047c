// Whole files in and out, with one-line errors that name the file.
#ifndef TIDEPOOL_SERVICE_CLI_FILES_H_
#define TIDEPOOL_SERVICE_CLI_FILES_H_

#include <string>

#include "absl/status/statusor.h"

namespace tidepool::service {

// "-" is stdin. NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT for a folder.
absl::StatusOr<std::string> ReadFile(const std::string& path);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_FILES_H_
