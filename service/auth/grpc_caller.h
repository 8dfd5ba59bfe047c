// Who calls over gRPC.
#ifndef TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_
#define TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_

#include <grpcpp/grpcpp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/auth/authenticator.h"

namespace tidepool::service {

// What a service asks of its callers. The authenticator, which may be null, outlives it.
struct Gate {
  const Authenticator* authenticator = nullptr;
  Access access = Access::kOperators;
  // Of TLS; streams without an end get no older either.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  const base::Clock* clock = &base::Clock::Real();  // outlives it
};

// As Admit. Every rpc of ours asks this before anything else.
absl::StatusOr<Caller> CallerOf(const grpc::ServerContextBase& context, const Gate& gate);

// How long a stream that has no end goes on: for as long as its caller is let in and, over TLS, no
// longer than a connection takes calls. Begins with its construction, which may be its connection's
// last moment: whoever begins one then holds the connection for twice the age and a tenth (GrpcHost),
// and until IsOver is asked behind that. Thread-compatible.
class StreamTerm {
 public:
  // The context outlives it.
  StreamTerm(const grpc::ServerContextBase* context, const Gate& gate);

  // Whether it is as old as it may get. Its client is let in anew by another stream.
  bool IsOver() const;
  // Errors as of CallerOf; UNAVAILABLE when it is over.
  absl::Status Check() const;

 private:
  const grpc::ServerContextBase* const context_;
  const Gate gate_;
  const absl::Duration end_;  // of the gate's monotonic clock
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_GRPC_CALLER_H_
