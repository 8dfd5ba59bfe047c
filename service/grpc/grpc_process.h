// Initialises gRPC once per process, before its first server or channel.
#ifndef TIDEPOOL_SERVICE_GRPC_GRPC_PROCESS_H_
#define TIDEPOOL_SERVICE_GRPC_GRPC_PROCESS_H_

namespace tidepool::service {

// Keeps gRPC's callback queue and its two threads until the process ends. gRPC 1.51 destroys the
// queue with the last server or channel. If a callback releases the last one, the queue's thread
// would have to join itself. Instead it uses freed memory and aborts the process
// (https://github.com/grpc/grpc/pull/32584). Thread-safe. Calling it again does nothing.
void KeepCallbackQueue();

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_GRPC_PROCESS_H_
