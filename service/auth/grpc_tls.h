// TLS of gRPC servers, with certificates that change while they run.
#ifndef TIDEPOOL_SERVICE_AUTH_GRPC_TLS_H_
#define TIDEPOOL_SERVICE_AUTH_GRPC_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "service/auth/tls_identity.h"

namespace tidepool::service {

// For one port, and to be kept until its server has ended. Each new connection gets the identity as
// it is then; with a CA in it, from the start on, clients must show a certificate of that CA.
// Requires: the identity has a certificate, and outlives the credentials.
std::shared_ptr<grpc::ServerCredentials> ReloadingServerCredentials(
    const WatchedFiles<TlsIdentity>* identity);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_GRPC_TLS_H_
