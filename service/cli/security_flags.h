// The flags that say who may call a server, and what a client shows it.
#ifndef TIDEPOOL_SERVICE_CLI_SECURITY_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_SECURITY_FLAGS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "service/cli/config.h"
#include "service/cli/flags.h"

namespace tidepool::service {

// A part of Flags(), of one group.
absl::Span<const FlagSpec> SecurityFlagSpecs();

// What does not go together in a server's flags: past loopback it takes callers with tokens, or the
// word that anybody may call. INVALID_ARGUMENT names the remedies.
absl::Status ValidateServerSecurity(const Config& config);
// The same of commands that ask a server.
absl::Status ValidateClientSecurity(const Config& config);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_SECURITY_FLAGS_H_
