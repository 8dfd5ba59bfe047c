#include "service/grpc/grpc_process.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

namespace tidepool::service {

void KeepCallbackQueue() {
  // A server without a port, which is never called or deleted. Its callback service keeps the queue
  // alive. Volatile, so that the unused pointer stays visible to leak checkers.
  static const grpc::Server* const volatile holder = [] {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(new grpc::CallbackGenericService());
    return builder.BuildAndStart().release();
  }();
  (void)holder;
}

}  // namespace tidepool::service
