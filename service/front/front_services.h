// The gRPC services of a front: tidepool.v1.Inference, Sessions and Admin over a FrontCore.
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

// `core`, `calls` (which counts all running calls) and `authenticator` (null: anyone may call)
// outlive the services and their servers. See Gate for `max_connection_age`.
FrontServices MakeFrontServices(FrontCore* core, ActiveCalls* calls,
                                const Authenticator* authenticator,
                                absl::Duration max_connection_age);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_SERVICES_H_
