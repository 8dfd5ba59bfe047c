// TLS for gRPC servers. Certificates may be replaced while a server runs.
#ifndef TIDEPOOL_SERVICE_AUTH_GRPC_TLS_H_
#define TIDEPOOL_SERVICE_AUTH_GRPC_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "service/auth/tls_identity.h"

namespace tidepool::service {

// Returns the credentials for one port. Keep them until the server has ended. Each new connection
// uses the certificate that `identity` has at that time. If `identity` has a CA from the start,
// clients must present a certificate of that CA. Requires: `identity` has a certificate, and
// outlives the credentials.
std::shared_ptr<grpc::ServerCredentials> ReloadingServerCredentials(
    const WatchedFiles<TlsIdentity>* identity);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_GRPC_TLS_H_
