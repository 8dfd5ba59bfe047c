#include "service/grpc/grpc_process.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

namespace tidepool::service {

void KeepCallbackQueue() {
  // This server has no port, gets no calls and is never deleted. Its callback service keeps the
  // queue alive. The pointer is volatile, so that leak checkers can still see it although it is not
  // used.
  static const grpc::Server* const volatile holder = [] {
    grpc::ServerBuilder builder;
    builder.RegisterCallbackGenericService(new grpc::CallbackGenericService());
    return builder.BuildAndStart().release();
  }();
  (void)holder;
}

}  // namespace tidepool::service
