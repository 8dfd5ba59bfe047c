// Parses values of flags: sizes, times, addresses, lists. Errors are INVALID_ARGUMENT and say what
// was found and what is accepted. The caller names the flag.
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

// "1GiB", "512MiB", "1.5GiB", "64KiB", "2GB" (10^9 bytes), "4096B". The unit is required.
absl::StatusOr<size_t> ParseSize(absl::string_view text);

// "30s", "500ms", "2m", "1h30m"; "0" alone needs no unit. Not negative, not infinite.
absl::StatusOr<absl::Duration> ParseTime(absl::string_view text);

absl::StatusOr<int64_t> ParseInteger(absl::string_view text, int64_t least, int64_t most);
// Refuses NaN and infinities.
absl::StatusOr<float> ParseNumber(absl::string_view text, float least, float most);

// "1,2,3", or "[1, 2, 3]" as tokenize prints it. At least one id, none negative.
absl::StatusOr<std::vector<int32_t>> ParseTokenIds(absl::string_view text);

// "1,4,8": at least one number.
absl::StatusOr<std::vector<int64_t>> ParseIntegers(absl::string_view text, int64_t least,
                                                   int64_t most);

// "ID=BIAS" or "ID:BIAS".
absl::StatusOr<std::pair<int32_t, float>> ParseLogitBias(absl::string_view text);

struct HostPort {
  std::string host;  // without brackets
  int port = 0;
};
// "127.0.0.1:50051", "localhost:0", "[::1]:50051".
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);
// True if only this machine can reach the host.
bool IsLoopback(absl::string_view host);

// A name as a message quotes it: the part after 64 bytes becomes "...".
std::string ShownName(absl::string_view name);

// Returns " (did you mean NAME?)" with the nearest candidate by edit distance, or "" if none is
// near. Names longer than 64 bytes never match.
std::string NearestNameHint(absl::string_view name, absl::Span<const std::string> candidates,
                            absl::string_view prefix);

// "1.50 GiB".
std::string FormatBytes(double bytes);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_UNITS_H_
