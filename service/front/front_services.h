// The gRPC services of a front: tidepool.v1.Inference, Sessions and Admin. They call a FrontCore.
#ifndef TIDEPOOL_SERVICE_FRONT_FRONT_SERVICES_H_
#define TIDEPOOL_SERVICE_FRONT_FRONT_SERVICES_H_

#include <memory>

#include "absl/time/time.h"
#include "service/auth/authenticator.h"
#include "service/base/active_calls.h"
#include "service/front/front_core.h"

namespace grpc {
class Service;
}

namespace tidepool::service {

struct FrontServices {
  std::unique_ptr<grpc::Service> inference;
  std::unique_ptr<grpc::Service> sessions;
  std::unique_ptr<grpc::Service> admin;
};

// `core`, `calls` and `authenticator` must outlive the services and their servers. `calls` counts
// all running calls. If `authenticator` is null, everyone may call. For `max_connection_age`, see
// Gate.
FrontServices MakeFrontServices(FrontCore* core, ActiveCalls* calls,
                                const Authenticator* authenticator,
                                absl::Duration max_connection_age);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_SERVICES_H_
