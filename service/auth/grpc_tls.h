// TLS for gRPC servers, whose certificates may change while they run.
#ifndef TIDEPOOL_SERVICE_AUTH_GRPC_TLS_H_
#define TIDEPOOL_SERVICE_AUTH_GRPC_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "service/auth/tls_identity.h"

namespace tidepool::service {

// Returns credentials for one port. Keep them until the server has ended. Each new connection uses
// the identity as it is at that time. If the identity has a CA from the start, clients must present
// a certificate of that CA. Requires: the identity has a certificate, and outlives the credentials.
std::shared_ptr<grpc::ServerCredentials> ReloadingServerCredentials(
    const WatchedFiles<TlsIdentity>* identity);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_GRPC_TLS_H_
