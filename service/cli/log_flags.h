// The flags for a server's log.
#ifndef TIDEPOOL_SERVICE_CLI_LOG_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_LOG_FLAGS_H_

#include "absl/types/span.h"
#include "service/cli/flags.h"

namespace tidepool::service {

// Returns one group of Flags().
absl::Span<const FlagSpec> LogFlagSpecs();

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_LOG_FLAGS_H_
