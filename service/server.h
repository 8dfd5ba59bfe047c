// The servers of the tidepool binary: a worker, a front, or both in one process.
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
  // A front uses the first three options.
  FrontLimits front_limits;
  PromptLogging log_prompts = PromptLogging::kNever;
  WorkerSources workers;  // only for a front that StartFrontServer has created
  // Only a worker uses this option. If nullopt, the engine keeps its own limit.
  std::optional<int64_t> max_queued;
};

struct ServerOptions {
  // HOST:PORT. Port 0: the system chooses a free port. Empty: the server opens no port, and is
  // reached only through InProcessChannel().
  std::string listen = "127.0.0.1:50051";
  // Separate address for the service Admin. Empty: Admin is served at `listen`. Fronts always call
  // a worker's Admin at `listen`.
  std::string admin_listen;
  // Separate address for gRPC health checks, in plain text and without tokens. Empty: none.
  std::string probe_listen;
  // HTTP address of a server with a front. Empty: no HTTP.
  std::string http;
  enum class PortTaken : uint8_t { kFail, kTakeAnother };
  // Access rules for HTTP. `web.hosts` has an effect only if `http` is a loopback address and
  // `web.pages` does not allow all pages.
  WebAccess web;
  // What to do if the port in `http` is in use. kTakeAnother suits a default port that the user did
  // not choose.
  PortTaken http_port_taken = PortTaken::kFail;
  // Maximum size of a gRPC message and of an HTTP request's body. A larger message is refused with
  // RESOURCE_EXHAUSTED, a larger body with HTTP status 413. A worker accepts twice this size,
  // because a request from a front also contains the session's log.
  int64_t max_message_bytes = 32 << 20;
  LiveOptions live;
  // The worker's name in fronts and in statistics. Empty: a random name.
  std::string worker_name;
  // How a front authenticates itself to workers and verifies the workers' certificates. Null: plain
  // text, without tokens.
  std::shared_ptr<ClientSecurity> worker_security;
  // The certificate for gRPC and HTTP over TLS. It must outlive the server. Null: plain text.
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  // Only for TLS: a connection that is older than this accepts no new calls, and closes when its
  // running calls have ended.
  absl::Duration max_connection_age = absl::Hours(1);
  // Identifies callers. It must outlive the server. Null: everyone may call.
  const Authenticator* authenticator = nullptr;
  // After this time without output, an HTTP stream sends a comment, which keeps the connection
  // alive.
  absl::Duration http_comment_every = absl::Seconds(15);
  // If a worker's engine has pending work but makes no progress for this time, liveness checks
  // fail.
  absl::Duration stall_timeout = absl::Minutes(1);
  // Receives log lines, for example when a worker connects or fails, a request ends, or an engine
  // hangs. It is called on any thread.
  LogSink log;
  WorkerAdmin::Process process;  // only for a worker; any thread may call its functions
};

// The phases of a shutdown, one after the other. The default is to stop at once.
struct ShutdownTimes {
  // First, the server still accepts new requests for this time. Meanwhile, clients learn to use
  // other servers.
  absl::Duration grace = absl::ZeroDuration();
  absl::Duration drain = absl::ZeroDuration();  // Then running requests have this time to finish.
  // Then the requests that still run are cancelled, and have this time to send their last bytes.
  absl::Duration cancel = absl::Seconds(5);
};

// Thread-safe.
class Server {
 public:
  // Stops at once. Running requests are cancelled.
  virtual ~Server() = default;

  // Returns the port of `listen`, or 0 if there is none.
  virtual int port() const = 0;
  // Returns HOST:PORT with the port that is really used. Empty if the server opens no port.
  virtual const std::string& address() const = 0;
  // Like address(), for HTTP, Admin and health checks.
  virtual std::string http_address() const { return ""; }
  virtual std::string admin_address() const = 0;
  virtual std::string probe_address() const = 0;
  // Returns a channel to this server that uses no network port. The server must outlive its calls.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;

  // Changes options. They apply to requests that begin after this call.
  virtual void Change(const LiveOptions& options) = 0;

  // Shuts down in the phases of `times`. All health checks except liveness report NOT_SERVING at
  // once. After times.grace, new requests fail with UNAVAILABLE, and a worker asks its fronts to
  // move running responses to other workers. After times.drain, requests that still run are
  // cancelled. Returns when all requests have ended.
  //
  // A second call does not start another shutdown. But if its times are shorter, it shortens the
  // first call, which runs on another thread.
  virtual void Shutdown(const ShutdownTimes& times) = 0;
};

// Starts a worker. It serves tidepool.worker.v1.Worker, Admin, health and reflection. `model` and
// `engine` must outlive the server. INVALID_ARGUMENT if an address is invalid. UNAVAILABLE if a
// port is in use.
absl::StatusOr<std::unique_ptr<Server>> StartWorkerServer(const WorkerModel* model,
                                                          engine::Engine* engine,
                                                          const ServerOptions& options);

// Starts a front. It serves Inference, Sessions, Admin, health and reflection. options.live.workers
// lists its workers, which may start later than the front. Errors are the same as for
// StartWorkerServer.
absl::StatusOr<std::unique_ptr<Server>> StartFrontServer(std::unique_ptr<SessionStore> store,
                                                         const ServerOptions& options);

// Starts a front with one worker in the same process. The front calls the worker over an in-process
// channel. Errors are the same as for StartWorkerServer.
absl::StatusOr<std::unique_ptr<Server>> StartServe(const WorkerModel* model, engine::Engine* engine,
                                                   std::unique_ptr<SessionStore> store,
                                                   const ServerOptions& options);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_SERVER_H_
