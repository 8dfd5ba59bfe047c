// Initialises gRPC once per process. Must run before the first server or channel is created.
#ifndef TIDEPOOL_SERVICE_GRPC_GRPC_PROCESS_H_
#define TIDEPOOL_SERVICE_GRPC_GRPC_PROCESS_H_

namespace tidepool::service {

// Keeps gRPC's callback queue and its two threads alive until the process ends. Without this, gRPC
// 1.51 destroys the queue together with the last server or channel. If a callback releases the last
// server or channel, the queue's thread would have to join itself. Instead, the thread uses freed
// memory and aborts the process (https://github.com/grpc/grpc/pull/32584). Thread-safe. A second
// call does nothing.
void KeepCallbackQueue();

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_GRPC_PROCESS_H_
