// ShutdownAcceptedSockets: shuts down all connections that this process accepted on given
// addresses, even if gRPC owns the sockets.
#ifndef TIDEPOOL_SERVICE_BASE_SHUTDOWN_ACCEPTED_SOCKETS_H_
#define TIDEPOOL_SERVICE_BASE_SHUTDOWN_ACCEPTED_SOCKETS_H_

#include <sys/socket.h>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tidepool::service {

// `listened` has IPv4 or IPv6 addresses with ports. Connections accepted on other addresses stay
// open, even with the same port. The owners of the sockets can no longer read or write. Data that
// was written before is delivered: this waits for it, at most `patience`. If the process has no
// file descriptors left, some connections are skipped. Returns the number of connections that were
// shut down. Thread-safe. Requires: the listeners are closed.
int ShutdownAcceptedSockets(absl::Span<const sockaddr_storage> listened, absl::Duration patience);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_SHUTDOWN_ACCEPTED_SOCKETS_H_
