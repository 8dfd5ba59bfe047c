// Finds out who makes a gRPC call.
#ifndef TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_
#define TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/auth/authenticator.h"

namespace tidepool::service {

// The access rule of a service. The authenticator may be null. It must outlive the gate.
struct Gate {
  const Authenticator* authenticator = nullptr;
  Access access = Access::kOperators;
  // Only for TLS: the maximum age of a connection, and of a stream that would never end.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  const base::Clock* clock = &base::Clock::Real();  // must outlive the gate
};

// Calls Admit with the credentials of the call. Every RPC calls this function first.
absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context, const Gate& gate);

// The lifetime of a stream that would never end by itself, such as WatchStats. The stream lives as
// long as its caller has access and, over TLS, at most for the maximum age of a connection. The
// time begins when this object is constructed. A stream may begin just before its connection
// reaches the maximum age (plus up to a tenth, see GrpcHost). Such a stream keeps the connection
// open until a call of IsOver returns true. So a connection can live for about twice the maximum
// age. Thread-compatible.
class StreamTerm {
 public:
  // `context` must outlive this object.
  StreamTerm(const grpc::ServerContextBase* context, const Gate& gate);

  // Returns whether the stream has reached the maximum age. The client may start another stream
  // then.
  bool IsOver() const;
  // Returns the errors of CallerOf, or UNAVAILABLE if the stream has reached the maximum age.
  absl::Status Check() const;

 private:
  const grpc::ServerContextBase* const context_;
  const Gate gate_;
  const absl::Duration end_;  // on the monotonic clock of the gate
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_
