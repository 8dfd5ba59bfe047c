// The servers that the binary runs: a worker, a front, or both in one process.
//
//   ASSIGN_OR_RETURN(auto store, SqliteSessionStore::Open("sessions.db", {}));
//   ASSIGN_OR_RETURN(auto server, StartServe(&model, engine.get(), std::move(store), options));
//   ... server->address() ...
//   server->Shutdown({.grace = absl::Seconds(1), .drain = absl::Seconds(30)});
#ifndef TIDEPOOL_SERVICE_SERVER_H_
#define TIDEPOOL_SERVICE_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine.h"
#include "service/auth/authenticator.h"
#include "service/auth/tls_identity.h"
#include "service/base/log_level.h"
#include "service/front/front_limits.h"
#include "service/front/worker_roster.h"
#include "service/http/web_access.h"
#include "service/store/session_store.h"
#include "service/worker/worker_admin.h"
#include "service/worker/worker_model.h"

namespace grpc {
class Channel;
}

namespace tidepool::service {

class ClientSecurity;

// Options that can change while a server runs.
struct LiveOptions {
  // Used by a front.
  FrontLimits front_limits;
  PromptLogging log_prompts = PromptLogging::kNever;
  WorkerSources workers;  // for a front that StartFrontServer created
  // Used by a worker. nullopt: the engine's own limit.
  std::optional<int64_t> max_queued;
};

struct ServerOptions {
  // HOST:PORT. Port 0 takes a free port. Empty: no port, only InProcessChannel().
  std::string listen = "127.0.0.1:50051";
  // Separate port for Admin. Empty: Admin is served on `listen`. Fronts always call a worker's
  // Admin on `listen`.
  std::string admin_listen;
  // Port for health only, in plain text and without tokens. Empty: none.
  std::string probe_listen;
  // HTTP address of servers with a front. Empty: no HTTP.
  std::string http;
  enum class PortTaken : uint8_t { kFail, kTakeAnother };
  // Access rules of HTTP. If `http` is a loopback address, `web.hosts` is checked, unless any page
  // may call.
  WebAccess web;
  // What to do if the port of `http` is in use. If the user did not choose the port, another one
  // may be taken.
  PortTaken http_port_taken = PortTaken::kFail;
  // Longer messages are refused with RESOURCE_EXHAUSTED before they are read.
  int64_t max_message_bytes = 32 << 20;
  LiveOptions live;
  // The worker's name in fronts and stats. Empty: a random name.
  std::string worker_name;
  // How a front authenticates to workers and verifies them. Null: plain text without tokens.
  std::shared_ptr<ClientSecurity> worker_security;
  // Certificate for gRPC and HTTP over TLS. Outlives the server. Null: plain text.
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  // For TLS: an older connection accepts no new calls, and closes when its running calls end.
  absl::Duration max_connection_age = absl::Hours(1);
  // Identifies callers. Outlives the server. Null: anyone may call.
  const Authenticator* authenticator = nullptr;
  // How often an HTTP stream without output gets a comment, which keeps the connection alive.
  absl::Duration http_comment_every = absl::Seconds(15);
  // If a worker's engine has pending work and makes no progress for this time, liveness fails.
  absl::Duration stall_timeout = absl::Minutes(1);
  // Receives log lines: workers that connect or fail, requests that end, an engine that hangs.
  // Called on any thread.
  LogSink log;
  WorkerAdmin::Process process;  // used by a worker; called on any thread
};

// The times of a shutdown. By default, the server stops at once.
struct ShutdownTimes {
  // For this time, new requests are still accepted, until clients learn to use other servers.
  absl::Duration grace = absl::ZeroDuration();
  absl::Duration drain = absl::ZeroDuration();  // then, time for running requests to finish
  // Then, time for cancelled calls to send their last bytes.
  absl::Duration cancel = absl::Seconds(5);
};

// Thread-safe.
class Server {
 public:
  // Stops at once and cancels running requests.
  virtual ~Server() = default;

  // The port that it listens on. 0 if none.
  virtual int port() const = 0;
  // HOST:PORT with the actual port. Empty if none.
  virtual const std::string& address() const = 0;
  // Same for HTTP, Admin's own port and the probe port. Empty if none.
  virtual std::string http_address() const { return ""; }
  virtual std::string admin_address() const = 0;
  virtual std::string probe_address() const = 0;
  // Returns a channel to this server that needs no port. The server outlives its calls.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;

  // Applies to requests that begin from now on.
  virtual void Change(const LiveOptions& options) = 0;

  // Sets all health except liveness to NOT_SERVING. After the grace time, new requests fail with
  // UNAVAILABLE, and a worker offers its streams to other workers. Running requests may finish
  // within the drain time, then they are cancelled. Returns when all requests have ended. Calling
  // it again does nothing, but another thread may call it with shorter times to speed up the first
  // call.
  virtual void Shutdown(const ShutdownTimes& times) = 0;
};

// Serves tidepool.worker.v1.Worker, Admin, health and reflection. `model` and `engine` outlive the
// server. INVALID_ARGUMENT if an address is invalid, UNAVAILABLE if a port is in use.
absl::StatusOr<std::unique_ptr<Server>> StartWorkerServer(const WorkerModel* model,
                                                          engine::Engine* engine,
                                                          const ServerOptions& options);

// Serves Inference, Sessions, Admin, health and reflection with options.live.workers. The workers
// need not run yet. Same errors as StartWorkerServer.
absl::StatusOr<std::unique_ptr<Server>> StartFrontServer(std::unique_ptr<SessionStore> store,
                                                         const ServerOptions& options);

// Same as StartFrontServer, with one worker in this process, over an in-process channel.
absl::StatusOr<std::unique_ptr<Server>> StartServe(const WorkerModel* model, engine::Engine* engine,
                                                   std::unique_ptr<SessionStore> store,
                                                   const ServerOptions& options);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_SERVER_H_
