// Converts statuses between Abseil and gRPC, and defines the metadata that workers add to them.
#ifndef TIDEPOOL_SERVICE_GRPC_STATUS_H_
#define TIDEPOOL_SERVICE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tidepool::service {

// Abseil and gRPC use the same code numbers. The message is truncated to fit a header. A
// base::RetryAfterOf hint becomes google.rpc.RetryInfo.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// Key of trailing metadata that marks the status of a Run as sent by the worker. gRPC itself uses
// the same codes when a connection breaks. One value is for a worker that keeps running, the other
// for one that drains and refused or gave up the run.
inline constexpr char kToldByWorker[] = "tidepool-told-by-worker";
inline constexpr char kWorkerStays[] = "1";
inline constexpr char kWorkerDrains[] = "drains";
// Key of initial metadata that a worker sends as soon as it accepts a Prepare or a Run. If a failed
// call has no such metadata, it never reached the worker.
inline constexpr char kTakenByWorker[] = "tidepool-taken-by-worker";
// Key of metadata for a Detokenize call that the front itself needs. Its value is the principal of
// the request that it is for.
inline constexpr char kForRequestOf[] = "tidepool-for-request-of-bin";

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_STATUS_H_
