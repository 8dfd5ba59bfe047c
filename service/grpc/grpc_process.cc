#include "service/grpc/grpc_process.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

namespace tidepool::service {

void KeepCallbackQueue() {
  // A server without a port, never called and never deleted. It is the callback service in it that
  // holds the queue. Volatile: nobody reads the pointer, but leak checkers must find it.
  static const grpc::Server* const volatile holder = [] {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(new grpc::CallbackGenericService());
    return builder.BuildAndStart().release();
  }();
  (void)holder;
}

}  // namespace tidepool::service
