// GrpcHost: one gRPC server with the common parts: health, reflection, limits, keep-alive.
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
  std::string listen;  // HOST:PORT; empty: no port
  // The flag that set it, for errors.
  absl::string_view listen_flag = "--listen";
  // Must have a certificate and outlive the host. Null: plain text.
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  // For TLS: at this age clients must open a new connection, which is checked against the current
  // files. Running calls continue.
  absl::Duration max_connection_age = absl::InfiniteDuration();
  int64_t max_message_bytes = 0;
  std::vector<grpc::Service*> services;  // must outlive the host
  // More health names, besides "", readiness and liveness.
  std::vector<std::string> health_names;
};

// Thread-safe.
class GrpcHost {
 public:
  static constexpr absl::Duration kLastBytes = absl::Seconds(1);

  // INVALID_ARGUMENT if the address is invalid, UNAVAILABLE if it cannot be listened on.
  static absl::StatusOr<std::unique_ptr<GrpcHost>> Start(const GrpcHostOptions& options);
  ~GrpcHost();

  int port() const { return port_; }
  const std::string& address() const { return address_; }
  std::shared_ptr<grpc::Channel> InProcessChannel();

  // Sets every health name except liveness.
  void SetReady(bool ready);
  // Sets liveness, which is SERVING from the start.
  void SetLive(bool live);
  // Calls SetReady(false) permanently, because a drain begins. Liveness does not change until
  // Shutdown.
  void StopReady();
  // Ends all running calls and waits for them. Their clients, and clients of later calls, get
  // UNAVAILABLE. So finish calls that need another status before. Waits up to `last_bytes` until
  // the last bytes of responses have reached the clients. Calling it again does nothing.
  void Shutdown(absl::Duration last_bytes = kLastBytes);

 private:
  GrpcHost() = default;
  // UNAVAILABLE and INVALID_ARGUMENT as in Start.
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

// The additional ports of a server.
struct MorePorts {
  std::string admin_listen;  // empty: none
  std::vector<grpc::Service*> admin_services;
  std::string probe_listen;  // health only, in plain text; empty: none
};

// Thread-safe. All ports of a server, which share one health state.
class GrpcHosts {
 public:
  // TLS and limits are the ones of `main`. Same errors as GrpcHost::Start.
  static absl::StatusOr<std::unique_ptr<GrpcHosts>> Start(const GrpcHostOptions& main,
                                                          const MorePorts& more);

  GrpcHost& main() { return *hosts_.front(); }
  // HOST:PORT. Empty if there is none.
  const std::string& admin_address() const { return admin_address_; }
  const std::string& probe_address() const { return probe_address_; }

  // These call the function of the same name on each GrpcHost.
  void SetReady(bool ready);
  void SetLive(bool live);
  void StopReady();
  void Shutdown(absl::Duration last_bytes = GrpcHost::kLastBytes);

 private:
  // Starts another host and returns its address.
  absl::StatusOr<std::string> Add(const GrpcHostOptions& options);

  std::vector<std::unique_ptr<GrpcHost>> hosts_;  // the first is the main one
  std::string admin_address_;
  std::string probe_address_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_GRPC_GRPC_HOST_H_
