// The front's wire: tidepool.v1.Inference, Sessions and Admin over a FrontCore.
#ifndef TIDEPOOL_SERVICE_FRONT_FRONT_SERVICES_H_
#define TIDEPOOL_SERVICE_FRONT_FRONT_SERVICES_H_

#include <memory>
#include <vector>

#include "service/active_calls.h"
#include "service/front/front_core.h"

namespace grpc {
class Service;
}

namespace tidepool::service {

// The three services. `core` and `calls` (which counts every call that runs) outlive them and the
// server that they are in.
std::vector<std::unique_ptr<grpc::Service>> MakeFrontServices(FrontCore* core, ActiveCalls* calls);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_SERVICES_H_
