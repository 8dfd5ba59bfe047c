// GrpcWorkerLink: a WorkerLink that uses a gRPC channel.
#ifndef TIDEPOOL_SERVICE_FRONT_GRPC_WORKER_LINK_H_
#define TIDEPOOL_SERVICE_FRONT_GRPC_WORKER_LINK_H_

#include <memory>
#include <string>

#include "service/auth/client_security.h"
#include "service/base/active_calls.h"
#include "service/base/event_loop.h"
#include "service/front/worker_link.h"

namespace grpc {
class Channel;
}

namespace tidepool::service {

// Opens a channel to HOST:PORT that shares no connection with others. gRPC's own retries are off,
// because the front decides what to retry. The worker's certificate must be valid for `name`, which
// has the form HOST:PORT. If `name` is empty, the certificate must be valid for the address.
std::shared_ptr<grpc::Channel> MakeWorkerChannel(const std::string& address,
                                                 const std::string& name, int64_t max_message_bytes,
                                                 std::shared_ptr<ClientSecurity> security);

// The loop on which the callbacks of a link run, and the object that counts its open calls. Both
// must outlive the link. The loop must run until no call is open.
struct WorkerLinkLoop {
  Executor* executor = nullptr;
  ActiveCalls* calls = nullptr;
};

std::unique_ptr<WorkerLink> MakeGrpcWorkerLink(std::shared_ptr<grpc::Channel> channel,
                                               std::string address, const WorkerLinkLoop& loop);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_GRPC_WORKER_LINK_H_
