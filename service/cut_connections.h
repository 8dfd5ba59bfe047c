// CutConnections: the end of all connections that a port of this process took, though others own
// them, as gRPC does.
#ifndef TIDEPOOL_SERVICE_CUT_CONNECTIONS_H_
#define TIDEPOOL_SERVICE_CUT_CONNECTIONS_H_

#include "absl/time/time.h"

namespace tidepool::service {

// Their owners read nothing more of them and write nothing more. What was written before arrives:
// that is waited for, but not longer than `patience`. Those for which this process has no file left
// stay as they are. Returns how many were cut. Requires: nobody listens at the port any more.
// Thread-safe.
int CutConnections(int port, absl::Duration patience);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CUT_CONNECTIONS_H_
