// Reads whole files, with one-line errors that name the file.
#ifndef TIDEPOOL_SERVICE_BASE_FILES_H_
#define TIDEPOOL_SERVICE_BASE_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace tidepool::service {

// The limit for input texts. It is larger than any model's context, and smaller than a machine's
// memory.
inline constexpr size_t kMaxTextBytes = size_t{256} << 20;

// Reads a file, or stdin if `path` is "-". Returns an error such as NOT_FOUND or PERMISSION_DENIED
// if the file cannot be opened. Returns INVALID_ARGUMENT if the path is a directory or the file has
// more than `max_bytes`. Stops reading soon after `max_bytes`, so the function also returns for
// files without an end.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_FILES_H_
