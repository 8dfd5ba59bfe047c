// Finds the trace that a gRPC call belongs to.
#ifndef TIDEPOOL_SERVICE_GRPC_GRPC_TRACE_H_
#define TIDEPOOL_SERVICE_GRPC_GRPC_TRACE_H_

#include <grpcpp/grpcpp.h>

#include <optional>

#include "service/base/trace_context.h"

namespace tidepool::service {

// Returns the trace in the call's metadata traceparent and tracestate. Returns nullopt if
// traceparent is missing or invalid.
std::optional<TraceContext> TraceOf(const grpc::ServerContextBase& context);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_GRPC_TRACE_H_
