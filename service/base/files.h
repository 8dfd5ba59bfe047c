// Whole files in and out, with one-line errors that name the file.
#ifndef TIDEPOOL_SERVICE_BASE_FILES_H_
#define TIDEPOOL_SERVICE_BASE_FILES_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace tidepool::service {

// A text to work on: well past what any model reads, and not all of a machine's memory.
inline constexpr size_t kMaxTextBytes = size_t{256} << 20;

// "-" is stdin. NOT_FOUND, PERMISSION_DENIED, or INVALID_ARGUMENT for a folder and for more than
// `most_bytes`, which is where reading of an endless file ends.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t most_bytes);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_FILES_H_
