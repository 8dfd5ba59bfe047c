// ShutdownAcceptedSockets: the end of all connections that this process took where it listened,
// though others own them, as gRPC does.
#ifndef TIDEPOOL_SERVICE_BASE_SHUTDOWN_ACCEPTED_SOCKETS_H_
#define TIDEPOOL_SERVICE_BASE_SHUTDOWN_ACCEPTED_SOCKETS_H_

#include <sys/socket.h>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace tidepool::service {

// `listened`: with their ports, of IPv4 or IPv6; connections that were taken at another address
// stay, also of the same port. The owners of the others read nothing more of them and write nothing
// more. What was written before arrives: that is waited for, but not longer than `patience`. Those
// for which this process has no file left stay as they are. Returns how many were cut. Requires:
// nobody listens there any more. Thread-safe.
int ShutdownAcceptedSockets(absl::Span<const sockaddr_storage> listened, absl::Duration patience);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_SHUTDOWN_ACCEPTED_SOCKETS_H_
