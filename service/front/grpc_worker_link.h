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

// A channel of its own to HOST:PORT, without gRPC's retries: the front decides what is tried again.
// `name` is the HOST:PORT that the worker's certificate is held against; empty: the address.
std::shared_ptr<grpc::Channel> MakeWorkerChannel(const std::string& address,
                                                 const std::string& name, int64_t max_message_bytes,
                                                 std::shared_ptr<ClientSecurity> security);

// Where a link's calls come back, and where they are counted while they are open: the loop must run
// until none is. Both outlive the link.
struct WorkerLinkLoop {
  Executor* executor = nullptr;
  ActiveCalls* calls = nullptr;
};

std::unique_ptr<WorkerLink> MakeGrpcWorkerLink(std::shared_ptr<grpc::Channel> channel,
                                               std::string address, const WorkerLinkLoop& loop);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_GRPC_WORKER_LINK_H_
