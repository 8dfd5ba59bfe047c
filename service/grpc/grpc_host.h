// GrpcHost: one gRPC server with the parts that all our servers have: health, reflection, limits
// and keep-alive.
#ifndef TIDEPOOL_SERVICE_GRPC_GRPC_HOST_H_
#define TIDEPOOL_SERVICE_GRPC_GRPC_HOST_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/mutex.h"
#include "service/auth/tls_identity.h"
#include "service/grpc/grpc_listener.h"

namespace tidepool::service {

struct GrpcHostOptions {
  std::string listen;  // HOST:PORT; empty: no port is opened
  // The flag that sets `listen`. Errors name it.
  absl::string_view listen_flag = "--listen";
  // If set, it must have a certificate and outlive the host. Null: plain text.
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  // Only for TLS: clients must replace a connection of this age by a new one, which is checked
  // against the current certificate files. Running calls continue on the old connection.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  int64_t max_message_bytes = 0;
  std::vector<grpc::Service*> services;  // they must outlive the host
  // Health is reported under these names, in addition to "", readiness and liveness.
  std::vector<std::string> health_names;
};

// Thread-safe.
class GrpcHost {
 public:
  static constexpr absl::Duration kLastBytes = absl::Seconds(1);

  // INVALID_ARGUMENT if the address is invalid. UNAVAILABLE if the host cannot listen on it.
  static absl::StatusOr<std::unique_ptr<GrpcHost>> Start(const GrpcHostOptions& options);
  ~GrpcHost();

  int port() const { return port_; }
  const std::string& address() const { return address_; }
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Sets the status of every health name except liveness.
  void SetReady(bool ready);
  // Sets the status of liveness. It is SERVING at the start.
  void SetLive(bool live);
  // Sets readiness to false for good, because the server begins to drain. Liveness does not change
  // until Shutdown.
  void StopReady();
  // Ends all running calls and waits until they have ended. Their clients, and clients that send
  // calls later, get UNAVAILABLE. If a call must end with another status, finish it before
  // Shutdown. Then waits until the last bytes of responses have reached the clients, at most for
  // `last_bytes`. A second call does nothing.
  void Shutdown(absl::Duration last_bytes = kLastBytes);

 private:
  GrpcHost() = default;
  // UNAVAILABLE and INVALID_ARGUMENT have the same meaning as in Start.
  absl::Status Listen(const std::string& listen, absl::string_view flag);

  int64_t max_message_bytes_ = 0;
  std::vector<std::string> health_names_;
  base::Mutex health_mutex_;
  bool draining_ TIDEPOOL_GUARDED_BY(health_mutex_) = false;
  int port_ = 0;
  std::string address_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;
  std::unique_ptr<GrpcListener> listener_;  // null: no port
  std::unique_ptr<grpc::Server> server_;
  base::Mutex shutdown_mutex_;
  bool down_ TIDEPOOL_GUARDED_BY(shutdown_mutex_) = false;
};

// Additional ports of a server.
struct MorePorts {
  std::string admin_listen;  // empty: none
  std::vector<grpc::Service*> admin_services;
  std::string probe_listen;  // for health only, in plain text; empty: none
};

// All ports of a server. They share one health state. Thread-safe.
class GrpcHosts {
 public:
  // TLS and limits of the additional ports are those of `main`. Errors are the same as for
  // GrpcHost::Start.
  static absl::StatusOr<std::unique_ptr<GrpcHosts>> Start(const GrpcHostOptions& main,
                                                          const MorePorts& more);

  GrpcHost& main() { return *hosts_.front(); }
  // Return HOST:PORT, or "" if there is no such port.
  const std::string& admin_address() const { return admin_address_; }
  const std::string& probe_address() const { return probe_address_; }

  // Each of these calls the function with the same name on every GrpcHost.
  void SetReady(bool ready);
  void SetLive(bool live);
  void StopReady();
  void Shutdown(absl::Duration last_bytes = GrpcHost::kLastBytes);

 private:
  // Starts another host and returns its address.
  absl::StatusOr<std::string> Add(const GrpcHostOptions& options);

  std::vector<std::unique_ptr<GrpcHost>> hosts_;  // the first one is main()
  std::string admin_address_;
  std::string probe_address_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_GRPC_HOST_H_
