// GrpcListener: the port of a gRPC server. gRPC 1.51 could listen by itself, but its listener is
// deaf for good after the first accept that fails, as accepts do when the process has as many files
// as it may (on_read in its tcp_server_posix.cc: every error but EAGAIN and EINTR ends it).
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

  // On every address of `host` that this machine has; "0.0.0.0" and "::" are all of both families.
  // Port 0 takes a free one. Connections wait until Start. UNAVAILABLE: there is none that can be
  // listened on; the message is the system's reason.
  static absl::StatusOr<std::unique_ptr<GrpcListener>> Listen(const std::string& host, int port);
  // As Stop.
  ~GrpcListener();

  // One for all addresses.
  int port() const { return port_; }
  // Those that are listened on, with the port.
  const std::vector<sockaddr_storage>& addresses() const { return addresses_; }

  // Gives connections to `acceptor`, whose server runs until Stop. Those that come when the
  // process has hardly any files left are closed. Requires: called once at most.
  void Start(std::unique_ptr<Acceptor> acceptor);
  // Closes the port. Later calls do nothing.
  void Stop();

 private:
  GrpcListener(std::vector<OwnedFd> sockets, OwnedFd wake);

  void Run();
  enum class Accepted : uint8_t { kAll, kFailed };
  Accepted AcceptFrom(int socket);

  std::vector<OwnedFd> sockets_;  // the thread's, once it runs
  const OwnedFd wake_;            // readable: the thread is to end
  const std::vector<sockaddr_storage> addresses_;
  const int port_;
  std::unique_ptr<Acceptor> acceptor_;
  base::Mutex mutex_;
  std::thread thread_ TIDEPOOL_GUARDED_BY(mutex_);
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_GRPC_LISTENER_H_
