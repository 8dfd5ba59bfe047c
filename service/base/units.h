// Parses the values of flags: sizes, times, addresses and lists. Errors are INVALID_ARGUMENT. They
// quote the value and say which values are accepted. The caller adds the name of the flag.
#ifndef TIDEPOOL_SERVICE_BASE_UNITS_H_
#define TIDEPOOL_SERVICE_BASE_UNITS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tidepool::service {

// Parses "1GiB", "512MiB", "1.5GiB", "64KiB", "2GB" (10^9 bytes) or "4096B". The unit is required.
absl::StatusOr<size_t> ParseSize(absl::string_view text);

// Parses "30s", "500ms", "2m" or "1h30m". Only "0" needs no unit. The time must not be negative or
// infinite.
absl::StatusOr<absl::Duration> ParseTime(absl::string_view text);

// `least` and `most` are the smallest and the largest allowed value.
absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t least, int64_t most);
// Like the function above, for a float. NaN and infinities are rejected.
absl::StatusOr<float> ParseNumber(absl::string_view text, float least, float most);

// Parses "1,2,3", or "[1, 2, 3]" as the command tokenize prints it. At least one id is required,
// and none may be negative.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view text);

// Parses "1,4,8". At least one number is required.
absl::StatusOr<std::vector<int64_t>> ParseIntegers(absl::string_view text, int64_t least,
                                                   int64_t most);

// Parses "ID=BIAS" or "ID:BIAS".
absl::StatusOr<std::pair<int32_t, float>> ParseLogitBias(absl::string_view text);

struct HostPort {
  std::string host;  // without the brackets of IPv6
  int port = 0;
};
// Parses "127.0.0.1:50051", "localhost:0" or "[::1]:50051".
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);
// Returns whether only this machine can reach the host.
bool IsLoopback(absl::string_view host);

// Returns a name as messages quote it. After 64 bytes, the rest is replaced by "...".
std::string ShownName(absl::string_view name);

// Returns " (did you mean NAME?)" with the candidate that is nearest by edit distance, or "" if no
// candidate is near. Names of more than 64 bytes get no hint.
std::string NearestNameHint(absl::string_view name, absl::Span<const std::string> candidates,
                            absl::string_view prefix);

// Returns a text such as "1.50 GiB".
std::string FormatBytes(double bytes);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_UNITS_H_
