// What gRPC needs once per process, before its first server or channel.
#ifndef TIDEPOOL_SERVICE_GRPC_PROCESS_H_
#define TIDEPOOL_SERVICE_GRPC_PROCESS_H_

namespace tidepool::service {

// Keeps gRPC's queue of callbacks, and its two threads, until the process ends. gRPC 1.51 ends the
// queue with its last server or channel; where a callback lets go of that last one, the queue's
// thread would join itself, goes on in freed memory instead, and aborts the process
// (https://github.com/grpc/grpc/pull/32584).
// Thread-safe; every call after the first does nothing.
void KeepCallbackQueue();

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_PROCESS_H_
