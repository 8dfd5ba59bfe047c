// Flags for a server's access control (TLS, tokens, limits of principals, the maximum age of a
// connection) and for a client's credentials.
#ifndef TIDEPOOL_SERVICE_CLI_SECURITY_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_SECURITY_FLAGS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "service/cli/config.h"
#include "service/cli/flags.h"

namespace tidepool::service {

// Returns one group of Flags().
absl::Span<const FlagSpec> SecurityFlagSpecs();

// Refuses contradictory flags of a server. If the server listens on a non-loopback address, it must
// require tokens or explicitly allow unauthenticated clients. INVALID_ARGUMENT says what to do.
absl::Status ValidateServerSecurity(const Config& config);
// Refuses contradictory flags of a command that calls a server.
absl::Status ValidateClientSecurity(const Config& config);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_SECURITY_FLAGS_H_
