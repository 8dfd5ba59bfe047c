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

// What may change while a server runs.
struct LiveOptions {
  // Of a front.
  FrontLimits front_limits;
  PromptLogging log_prompts = PromptLogging::kNever;
  WorkerSources workers;  // of one that StartFrontServer made
  // Of a worker; none: as its engine has it.
  std::optional<int64_t> max_queued;
};

struct ServerOptions {
  // HOST:PORT; port 0 takes a free one. Empty: no port at all, InProcessChannel() alone.
  std::string listen = "127.0.0.1:50051";
  // Admin's own port; empty: Admin is at `listen`. A worker's fronts ask it there in either case.
  std::string admin_listen;
  // A port for health alone, in plain text and without tokens. Empty: none.
  std::string probe_listen;
  // The same for HTTP, of servers that have a front. Empty: no HTTP.
  std::string http;
  enum class PortTaken : uint8_t { kFail, kTakeAnother };
  // Over HTTP. Where `http` is an address of this machine alone, `web.hosts` is checked, unless any
  // page may ask.
  WebAccess web;
  // What if another has the port of `http`: another may be taken where nobody named this one.
  PortTaken http_port_taken = PortTaken::kFail;
  // Longer messages are refused with RESOURCE_EXHAUSTED before they are read.
  int64_t max_message_bytes = 32 << 20;
  LiveOptions live;
  // How a worker is known to its fronts and in stats. Empty: drawn.
  std::string worker_name;
  // What a front shows its workers, and asks of them. Null: nothing.
  std::shared_ptr<ClientSecurity> worker_security;
  // gRPC and HTTP over TLS, with a certificate; outlives the server. Null: plain text.
  const WatchedFiles<TlsIdentity>* tls = nullptr;
  // Of TLS: a connection that is older takes no further calls, and ends with those that run.
  absl::Duration max_connection_age = absl::Hours(1);
  // Who may call; outlives the server. Null: anybody.
  const Authenticator* authenticator = nullptr;
  // Of a stream over HTTP of which nothing has come: when it gets a comment that says so.
  absl::Duration http_comment_every = absl::Seconds(15);
  // A worker's engine that does not move for so long with work pending is not alive.
  absl::Duration stall_timeout = absl::Minutes(1);
  // A worker lost or found, a request's end, an engine that hangs. Any thread.
  LogSink log;
  WorkerAdmin::Process process;  // of a worker; called on any thread
};

// How a server ends; the defaults: at once.
struct ShutdownTimes {
  // New work is still taken for so long, while whoever sends it learns to send it elsewhere.
  absl::Duration grace = absl::ZeroDuration();
  absl::Duration drain = absl::ZeroDuration();  // what runs may finish within this
  // What was cancelled then has so long to send its last bytes to its client.
  absl::Duration cancel = absl::Seconds(5);
};

// Thread-safe.
class Server {
 public:
  // Ends at once, cancelling what runs.
  virtual ~Server() = default;

  // The port that is listened on; 0: none.
  virtual int port() const = 0;
  // HOST:PORT with the port that was taken; empty: none.
  virtual const std::string& address() const = 0;
  // The same of HTTP, Admin's own port and the probes'; empty: none.
  virtual std::string http_address() const { return ""; }
  virtual std::string admin_address() const = 0;
  virtual std::string probe_address() const = 0;
  // A channel to this server that needs no port. The server outlives its calls.
  virtual std::shared_ptr<grpc::Channel> InProcessChannel() = 0;

  // For what begins from now on.
  virtual void Change(const LiveOptions& options) = 0;

  // Health but liveness turns NOT_SERVING; after the grace new work is refused with UNAVAILABLE,
  // and a worker offers its streams to others; what runs may finish within the drain time, then it
  // is cancelled. Returns when all has ended; later calls do nothing more. Another thread may call
  // with shorter times to hurry the first call up.
  virtual void Shutdown(const ShutdownTimes& times) = 0;
};

// Serves tidepool.worker.v1.Worker, Admin, health and reflection. `model` and `engine` outlive the
// server. Errors: INVALID_ARGUMENT (an address that cannot be read), UNAVAILABLE (the port is
// taken).
absl::StatusOr<std::unique_ptr<Server>> StartWorkerServer(const WorkerModel* model,
                                                          engine::Engine* engine,
                                                          const ServerOptions& options);

// Serves Inference, Sessions, Admin, health and reflection over options.live.workers, which need
// not run yet. Errors as StartWorkerServer.
absl::StatusOr<std::unique_ptr<Server>> StartFrontServer(std::unique_ptr<SessionStore> store,
                                                         const ServerOptions& options);

// The same with one worker in this process, reached over an in-process channel.
absl::StatusOr<std::unique_ptr<Server>> StartServe(const WorkerModel* model, engine::Engine* engine,
                                                   std::unique_ptr<SessionStore> store,
                                                   const ServerOptions& options);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_SERVER_H_
