// Identifies the caller of a gRPC call.
#ifndef TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_
#define TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/auth/authenticator.h"

namespace tidepool::service {

// The access rule of a service. The authenticator, which may be null, outlives it.
struct Gate {
  const Authenticator* authenticator = nullptr;
  Access access = Access::kOperators;
  // For TLS; also limits the age of endless streams.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  const base::Clock* clock = &base::Clock::Real();  // outlives the gate
};

// Same as Admit. Every RPC calls this first.
absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context, const Gate& gate);

// The lifetime of an endless stream: while its caller has access and, over TLS, at most the maximum
// age of a connection. It starts with the construction. If that is the last moment of the
// connection, the stream holds the connection for twice the age plus a tenth (GrpcHost), and until
// the next call of IsOver. Thread-compatible.
class StreamTerm {
 public:
  // The context outlives it.
  StreamTerm(const grpc::ServerContextBase* context, const Gate& gate);

  // True if it has reached the maximum age. The client may start another stream.
  bool IsOver() const;
  // Errors as in CallerOf; UNAVAILABLE if it is over.
  absl::Status Check() const;

 private:
  const grpc::ServerContextBase* const context_;
  const Gate gate_;
  const absl::Duration end_;  // on the gate's monotonic clock
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_
