// Flags of bench that describe the load on a server.
#ifndef TIDEPOOL_SERVICE_CLI_TRAFFIC_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_TRAFFIC_FLAGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "service/cli/config.h"
#include "service/cli/flags.h"

namespace tidepool::service {

// The group that has --server and the flags that require it.
inline constexpr absl::string_view kTrafficGroup = "Load";

absl::Span<const FlagSpec> TrafficFlagSpecs();

// Refuses contradictory flags with INVALID_ARGUMENT. Requires: config.client.server is set.
absl::Status ValidateTraffic(const Config& config);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_FLAGS_H_
