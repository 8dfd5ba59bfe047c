// Who calls over gRPC.
#ifndef TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_
#define TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/statusor.h"
#include "service/auth/authenticator.h"

namespace tidepool::service {

// What a service asks of its callers. The authenticator, which may be null, outlives it.
struct Gate {
  const Authenticator* authenticator = nullptr;
  Access access = Access::kOperators;
};

// As Admit. Every rpc of ours asks this before anything else.
absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context, const Gate& gate);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_
