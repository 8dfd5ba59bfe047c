// Flags with which bench loads a server, for the table of flags.
#ifndef TIDEPOOL_SERVICE_CLI_TRAFFIC_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_TRAFFIC_FLAGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "service/cli/config.h"
#include "service/cli/flags.h"

namespace tidepool::service {

// All flags that mean nothing without --server, and that one itself.
inline constexpr absl::string_view kTrafficGroup = "Load";

absl::Span<const FlagSpec> TrafficFlagSpecs();

// Requires: config.client.server is set. INVALID_ARGUMENT: flags that contradict each other.
absl::Status ValidateTraffic(const Config& config);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_FLAGS_H_
