// ShutdownAcceptedSockets: shuts down all connections that this process has accepted on the given
// addresses, even if gRPC owns their sockets.
#ifndef TIDEPOOL_SERVICE_BASE_SHUTDOWN_ACCEPTED_SOCKETS_H_
#define TIDEPOOL_SERVICE_BASE_SHUTDOWN_ACCEPTED_SOCKETS_H_

#include <sys/socket.h>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tidepool::service {

// `listened` contains IPv4 or IPv6 addresses with ports. Connections that were accepted on other
// addresses stay open, even if their port is the same. First waits until the peers have received
// the data that was already written, at most for `patience`. After the shutdown, the owners of the
// sockets can neither read nor write. If the process has no free file descriptors, some connections
// are left open. Returns the number of connections that were shut down. Thread-safe. Requires: the
// listeners are closed.
int ShutdownAcceptedSockets(absl::Span<const sockaddr_storage> listened, absl::Duration patience);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_SHUTDOWN_ACCEPTED_SOCKETS_H_
