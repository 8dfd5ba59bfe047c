// Reads whole files, with one-line errors that name the file.
#ifndef TIDEPOOL_SERVICE_BASE_FILES_H_
#define TIDEPOOL_SERVICE_BASE_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace tidepool::service {

// Limit for input texts: larger than any model's context, smaller than a machine's memory.
inline constexpr size_t kMaxTextBytes = size_t{256} << 20;

// Reads a file, or stdin for "-". Returns NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT for a
// directory or more than `most_bytes`. Endless files stop at this limit.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_FILES_H_
