// Converts statuses between Abseil and gRPC, and defines keys of metadata between fronts and
// workers.
#ifndef TIDEPOOL_SERVICE_GRPC_STATUS_H_
#define TIDEPOOL_SERVICE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace tidepool::service {

// Abseil and gRPC have the same code numbers. ToGrpcStatus shortens the message so that it fits
// into a header. A retry hint (base::RetryAfterOf) becomes google.rpc.RetryInfo.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

// Key of trailing metadata of a Run. It shows that the worker sent the status. Otherwise the status
// may be from gRPC itself, which uses the same codes when a connection breaks. kWorkerStays: the
// worker keeps running. kWorkerDrains: the worker shuts down and has refused or ended the run.
inline constexpr char kSentByWorker[] = "tidepool-told-by-worker";
inline constexpr char kWorkerStays[] = "1";
inline constexpr char kWorkerDrains[] = "drains";
// Key of initial metadata that a worker sends as soon as it has accepted a Prepare or a Run. If a
// failed call has no such metadata, the call has never reached the worker.
inline constexpr char kTakenByWorker[] = "tidepool-taken-by-worker";
// Key of metadata of a Detokenize call that a front needs for a request. The value is the principal
// of that request.
inline constexpr char kForRequestOf[] = "tidepool-for-request-of-bin";

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_STATUS_H_
