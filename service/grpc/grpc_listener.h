// GrpcListener: the listening port of a gRPC server. gRPC 1.51 has its own listener, but that stops
// for good after the first failed accept, for example when the process has reached its file limit
// (on_read in its tcp_server_posix.cc: every error except EAGAIN and EINTR ends it).
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

  // Listens on every address of `host` on this machine. "0.0.0.0" and "::" both mean all addresses
  // of both families. Port 0 takes a free port. Connections wait until Start. UNAVAILABLE if no
  // address can be used; the message is the system's reason.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Listen(const std::string& host, int port);
  // Same as Stop.
  ~GrpcListener();

  // The same port for all addresses.
  int port() const { return port_; }
  // The addresses that it listens on, with ports.
  const std::vector<sockaddr_storage>& addresses() const { return addresses_; }

  // Passes connections to `acceptor`, whose server must run until Stop. Closes new connections if
  // the process is almost out of file descriptors. Requires: called at most once.
  void Start(std::unique_ptr<Acceptor> acceptor);
  // Closes the port. Calling it again does nothing.
  void Stop();

 private:
  GrpcListener(std::vector<OwnedFd> sockets, OwnedFd wake);

  void Run();
  enum class Accepted : uint8_t { kAll, kFailed };
  Accepted AcceptFrom(int socket);

  std::vector<OwnedFd> sockets_;  // used by the thread once it runs
  const OwnedFd wake_;            // readable when the thread must end
  const std::vector<sockaddr_storage> addresses_;
  const int port_;
  std::unique_ptr<Acceptor> acceptor_;
  base::Mutex mutex_;
  std::thread thread_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_GRPC_LISTENER_H_
