// GrpcWorkerLink: a WorkerLink over a gRPC channel.
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

// Opens a separate channel to HOST:PORT without gRPC's retries: the front decides what to retry.
// The worker's certificate must be valid for `name`, which is also HOST:PORT. Empty: the address.
std::shared_ptr<grpc::Channel> MakeWorkerChannel(const std::string& address,
                                                 const std::string& name, int64_t max_message_bytes,
                                                 std::shared_ptr<ClientSecurity> security);

// The loop on which a link's calls complete, and the counter of its open calls. The loop must run
// until no call is open. Both outlive the link.
struct WorkerLinkLoop {
  Executor* executor = nullptr;
  ActiveCalls* calls = nullptr;
};

std::unique_ptr<WorkerLink> MakeGrpcWorkerLink(std::shared_ptr<grpc::Channel> channel,
                                               std::string address, const WorkerLinkLoop& loop);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_GRPC_WORKER_LINK_H_
