// GrpcListener: the listening port of a gRPC server. gRPC 1.51's own listener stops for good when
// accept fails once, for example because the process has reached its limit of open files. (See
// on_read in gRPC's tcp_server_posix.cc: every error except EAGAIN and EINTR ends the listener.)
#ifndef TIDEPOOL_SERVICE_GRPC_GRPC_LISTENER_H_
#define TIDEPOOL_SERVICE_GRPC_GRPC_LISTENER_H_

#include <grpcpp/server_builder.h>
#include <sys/socket.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/base/mutex.h"
#include "service/base/owned_fd.h"

namespace tidepool::service {

// Thread-safe.
class GrpcListener {
 public:
  using Acceptor = grpc::experimental::ExternalConnectionAcceptor;

  // Listens on every address of this machine that `host` resolves to. "0.0.0.0" and "::" both mean
  // all IPv4 and IPv6 addresses. Port 0: the system chooses a free port. Connections wait in the
  // kernel until Start. UNAVAILABLE if it cannot listen on any address. The message is the system's
  // reason.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Listen(const std::string& host, int port);
  // Calls Stop.
  ~GrpcListener();

  // Returns the port, which is the same for all addresses.
  int port() const { return port_; }
  // Returns the addresses on which it listens, with their ports.
  const std::vector<sockaddr_storage>& addresses() const { return addresses_; }

  // Passes new connections to `acceptor`. The acceptor's server must run until Stop. If the process
  // has almost no file descriptors left, new connections are closed at once. Requires: called at
  // most once.
  void Start(std::unique_ptr<Acceptor> acceptor);
  // Closes the port. A second call does nothing.
  void Stop();

 private:
  GrpcListener(std::vector<OwnedFd> sockets, OwnedFd wake);

  void Run();
  enum class Accepted : uint8_t { kAll, kFailed };
  Accepted AcceptFrom(int socket);

  std::vector<OwnedFd> sockets_;  // used only by the thread after Start
  const OwnedFd wake_;            // becomes readable when the thread must end
  const std::vector<sockaddr_storage> addresses_;
  const int port_;
  std::unique_ptr<Acceptor> acceptor_;
  base::Mutex mutex_;
  std::thread thread_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_GRPC_LISTENER_H_
