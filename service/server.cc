#include "service/server.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "kernels/base/random_hex.h"
#include "kernels/base/status_macros.h"
#include "service/base/active_calls.h"
#include "service/base/event_loop.h"
#include "service/base/units.h"
#include "service/front/front_core.h"
#include "service/front/front_services.h"
#include "service/front/grpc_worker_link.h"
#include "service/front/name_lookup.h"
#include "service/front/worker_roster.h"
#include "service/grpc/grpc_host.h"
#include "service/http/http_server.h"
#include "service/http/openai_api.h"
#include "service/worker/worker_service.h"

namespace tidepool::service {
namespace {

// Maximum time for cancelled calls to workers to end.
constexpr absl::Duration kCancelGrace = absl::Seconds(5);
// Maximum time for a worker to deliver its last messages to its fronts.
constexpr absl::Duration kLastWords = absl::Seconds(1);
// Maximum time for `serve` to wait for the first state of its own worker.
constexpr absl::Duration kOwnWorkerWait = absl::Seconds(10);

std::string NameOrDrawn(const std::string& name) {
  return name.empty() ? absl::StrCat("worker-", base::RandomHex(8)) : name;
}

// Logs a worker's info lines as debug lines. Used if the worker's front is in the same process,
// because the front logs the same events.
LogSink InfoAsDebug(const LogSink& log) {
  return [log](LogLevel level, absl::string_view line, LogFields fields) {
    log(level == LogLevel::kInfo ? LogLevel::kDebug : level, line, fields);
  };
}

WebAccess WebAccessOf(const ServerOptions& options) {
  WebAccess web = options.web;
  const absl::StatusOr<HostPort> http = ParseHostPort(options.http);
  if (http.ok() && IsLoopback(http->host) && web.pages != Pages::kAny) {
    web.hosts.served = HostPolicy::Served::kOfThisMachine;
  }
  return web;
}

// Runs `task` on the loop and waits until it has run. Requires: the caller is not on the loop.
void RunOn(Executor* loop, std::function<void()> task) {
  std::promise<void> ran;
  loop->Post([&] {
    task();
    ran.set_value();
  });
  ran.get_future().wait();
}

class WorkerServer final : public Server {
 public:
  static absl::StatusOr<std::unique_ptr<WorkerServer>> Start(const WorkerModel* model,
                                                             engine::Engine* engine,
                                                             const ServerOptions& options) {
    auto server = std::unique_ptr<WorkerServer>(new WorkerServer(model, engine, options));
    GrpcHostOptions host = {.listen = options.listen,
                            .tls = options.tls,
                            .max_connection_age = options.max_connection_age,
                            // A front adds the session's log to a client's request, so a worker
                            // accepts larger messages.
                            .max_message_bytes = 2 * options.max_message_bytes,
                            .services = {&server->worker_, &server->admin_},
                            .health_names = {"tidepool.worker.v1.Worker", "tidepool.v1.Admin"}};
    ASSIGN_OR_RETURN(server->hosts_,
                     GrpcHosts::Start(host, {.admin_listen = options.admin_listen,
                                             .admin_services = {&server->own_admin_},
                                             .probe_listen = options.probe_listen}));
    server->hosts_->SetReady(true);
    RunOn(server->core_.loop(), [&] {
      server->core_.WatchEngine(
          options.stall_timeout,
          [raw = server.get()](const absl::Status& live) { raw->OnLiveness(live); },
          [raw = server.get()](bool ready) { raw->OnReadiness(ready); });
    });
    return server;
  }
  ~WorkerServer() override {
    RunOn(core_.loop(), [this] { core_.StopWatching(); });
    if (hosts_ != nullptr) Shutdown({});
  }

  // Sets the function that is called when the engine's liveness changes. It is called on the
  // worker's loop. Null removes the function: after TellLiveness(nullptr) has returned, it is not
  // called any more.
  void TellLiveness(WorkerCore::OnLiveness listener) {
    RunOn(core_.loop(), [&] { liveness_listener_ = std::move(listener); });
  }

  int port() const override { return hosts_->main().port(); }
  const std::string& address() const override { return hosts_->main().address(); }
  std::string admin_address() const override { return hosts_->admin_address(); }
  std::string probe_address() const override { return hosts_->probe_address(); }
  std::shared_ptr<grpc::Channel> InProcessChannel() override {
    return hosts_->main().InProcessChannel();
  }

  void Change(const LiveOptions& options) override {
    if (options.max_queued.has_value()) core_.engine()->SetMaxQueued(*options.max_queued);
  }

  void Shutdown(const ShutdownTimes& times) override {
    hosts_->StopReady();
    core_.BeginDrain();
    core_.runs()->Linger(times.grace);
    core_.runs()->Close();
    const bool in_haste = times.drain <= absl::ZeroDuration();
    if (!in_haste) core_.HandOver(times.drain);
    const bool empty = core_.runs()->Drain(times.drain);
    if (times.cancel < kLastWords) {
      core_.runs()->Hurry(times.cancel);
      core_.unary_calls()->Drain(times.cancel);
    }
    base::MutexLock lock(&mutex_);
    if (std::exchange(down_, true)) return;
    if (in_haste) return hosts_->Shutdown();
    // Ends each run with a status. Without a status, the front would treat the broken connection as
    // a crash.
    if (!empty) core_.GiveUpRuns();
    core_.runs()->AwaitNone(kLastWords);
    core_.unary_calls()->Drain(kLastWords);
    hosts_->Shutdown();
  }

 private:
  WorkerServer(const WorkerModel* model, engine::Engine* engine, const ServerOptions& options)
      : log_(options.log),
        core_(model, engine, NameOrDrawn(options.worker_name), options.process, options.log),
        worker_(&core_, GateTo(Access::kFronts, options)),
        admin_(&core_,
               GateTo(options.admin_listen.empty() ? Access::kOperatorsOrFronts : Access::kFronts,
                      options)),
        own_admin_(&core_, GateTo(Access::kOperators, options)) {}

  static Gate GateTo(Access access, const ServerOptions& options) {
    return {.authenticator = options.authenticator,
            .access = access,
            .max_connection_age = options.max_connection_age};
  }

  void OnLiveness(const absl::Status& live) {
    if (live.ok()) {
      log_(LogLevel::kWarn, "the engine makes progress again");
    } else {
      log_(LogLevel::kError, live.message());
    }
    hosts_->SetLive(live.ok());
    if (liveness_listener_) liveness_listener_(live);
  }

  // If a front is in this process, it watches the worker's state, so it needs no call here.
  void OnReadiness(bool ready) { hosts_->SetReady(ready); }

  const LogSink log_;
  WorkerCore::OnLiveness liveness_listener_;  // used on the core's loop only
  WorkerCore core_;
  WorkerService worker_;
  WorkerAdminService admin_;      // Admin at the address where fronts call
  WorkerAdminService own_admin_;  // Admin at its own address
  std::unique_ptr<GrpcHosts> hosts_;
  base::Mutex mutex_;
  bool down_ TIDEPOOL_GUARDED_BY(mutex_) = false;
};

class FrontServer final : public Server {
 public:
  // `own_worker` is a channel to the worker in this process. If it is null, options.live.workers
  // lists the workers.
  static absl::StatusOr<std::unique_ptr<FrontServer>> Start(
      std::shared_ptr<grpc::Channel> own_worker, std::unique_ptr<SessionStore> store,
      const ServerOptions& options) {
    auto server = std::unique_ptr<FrontServer>(new FrontServer(std::move(store), options));
    GrpcHostOptions host = {
        .listen = options.listen,
        .tls = options.tls,
        .max_connection_age = options.max_connection_age,
        .max_message_bytes = options.max_message_bytes,
        .services = {server->services_.inference.get(), server->services_.sessions.get()},
        .health_names = {"tidepool.v1.Inference", "tidepool.v1.Sessions", "tidepool.v1.Admin"}};
    grpc::Service* const admin = server->services_.admin.get();
    if (options.admin_listen.empty()) host.services.push_back(admin);
    ASSIGN_OR_RETURN(server->hosts_,
                     GrpcHosts::Start(host, {.admin_listen = options.admin_listen,
                                             .admin_services = {admin},
                                             .probe_listen = options.probe_listen}));
    if (!options.http.empty()) RETURN_IF_ERROR(server->StartHttp(options));
    RunOn(&server->loop_, [&] {
      server->core_->workers()->OnReadiness(
          [raw = server.get()](bool ready) { raw->OnReadiness(ready); });
      own_worker == nullptr ? server->MakeRoster(options)
                            : server->core_->workers()->Add(MakeGrpcWorkerLink(
                                  own_worker, "in process", server->link_loop()));
    });
    server->store_->OnHealth(
        [raw = server.get()](const absl::Status& status) { raw->OnStore(status); });
    server->Change(options.live);
    return server;
  }

  ~FrontServer() override {
    store_->OnHealth(nullptr);
    // If Start failed before it created the hosts, no call has begun.
    hosts_ != nullptr ? Shutdown({}) : LeaveWorkers();
    hosts_.reset();
    // Flush the store twice, because the result of a store call can cause one more call. For
    // example, a turn that began too late releases its lease, and a failed append ends its turn.
    for (int answers = 0; answers < 2; ++answers) FlushStore();
    store_.reset();
    loop_.Stop();
  }

  int port() const override { return hosts_->main().port(); }
  const std::string& address() const override { return hosts_->main().address(); }
  std::string admin_address() const override { return hosts_->admin_address(); }
  std::string probe_address() const override { return hosts_->probe_address(); }
  std::string http_address() const override { return http_ == nullptr ? "" : http_->address(); }
  std::shared_ptr<grpc::Channel> InProcessChannel() override {
    return hosts_->main().InProcessChannel();
  }

  // Sets the liveness of the worker in this process. May be called on any thread.
  void SetLive(const absl::Status& live) {
    hosts_->SetLive(live.ok());
    api_.SetLive(live);
  }

  void Change(const LiveOptions& options) override {
    RunOn(&loop_, [&] {
      core_->SetLimits(options.front_limits);
      core_->requests()->log()->SetPrompts(options.log_prompts);
      if (roster_ != nullptr) roster_->Set(options.workers);
    });
  }

  // Waits until a worker is ready. Returns false if none was ready within `timeout`.
  bool WaitReady(absl::Duration timeout) {
    base::MutexLock lock(&mutex_);
    while (!ready_) {
      if (!ready_changed_.WaitFor(&mutex_, timeout)) return ready_;
    }
    return true;
  }

  void Shutdown(const ShutdownTimes& times) override {
    if (times.cancel < ShutdownTimes().cancel) Hurry(times.cancel);
    hosts_->StopReady();
    api_.StopReady();
    calls_.Linger(times.grace);
    calls_.Close();
    const absl::Status leaving = absl::UnavailableError("the server is shutting down");
    loop_.Post([this, leaving] {
      if (core_ != nullptr) core_->stats()->CloseWatches(leaving);
    });
    calls_.Drain(times.drain);
    base::MutexLock lock(&shutdown_mutex_);
    if (std::exchange(down_, true)) return;
    RunOn(&loop_, [this] {
      core_->CloseGenerations(
          absl::UnavailableError("the server is shutting down; retry at another server"));
    });
    const base::Clock& clock = base::Clock::Real();
    const absl::Duration end = clock.Monotonic() + times.cancel;
    const bool ended = calls_.AwaitNone(times.cancel);
    if (!ended && !hurried_) {
      log_(LogLevel::kWarn,
           absl::StrCat("some clients did not read the end of their streams within ",
                        absl::FormatDuration(times.cancel)));
    }
    hosts_->Shutdown(hurried_ ? absl::ZeroDuration() : GrpcHost::kLastBytes);
    if (http_ != nullptr) {
      http_->Shutdown(std::max(end - clock.Monotonic(), absl::ZeroDuration()));
    }
    LeaveWorkers();
  }

 private:
  FrontServer(std::unique_ptr<SessionStore> store, const ServerOptions& options)
      : log_(options.log),
        store_(std::move(store)),
        core_(std::make_unique<FrontCore>(&loop_, &base::Clock::Real(), store_.get(), options.log,
                                          options.live.front_limits)),
        api_({.core = core_.get(), .calls = &calls_, .comment_every = options.http_comment_every},
             {.authenticator = options.authenticator,
              .web = WebAccessOf(options),
              .log = options.log}) {
    services_ =
        MakeFrontServices(core_.get(), &calls_, options.authenticator, options.max_connection_age);
  }

  absl::Status StartHttp(const ServerOptions& options) {
    HttpServerOptions http = {.listen = options.http, .tls = options.tls};
    http.limits.max_body_bytes = options.max_message_bytes;
    if (options.tls != nullptr) http.limits.max_connection_age = options.max_connection_age;
    absl::StatusOr<std::unique_ptr<HttpServer>> started = HttpServer::Start(&api_, http);
    if (absl::IsUnavailable(started.status()) &&
        options.http_port_taken == ServerOptions::PortTaken::kTakeAnother) {
      http.listen = absl::StrCat(options.http.substr(0, options.http.rfind(':')), ":0");
      started = HttpServer::Start(&api_, http);
    }
    if (started.ok()) http_ = *std::move(started);
    return started.status();
  }

  // Shortens a Shutdown call that runs on another thread: from now on, Shutdown waits for clients
  // at most the time `most`.
  void Hurry(absl::Duration most) {
    hurried_ = true;
    calls_.Hurry(most);
    if (http_ != nullptr) http_->Hurry();
  }

  WorkerLinkLoop link_loop() { return {.executor = &loop_, .calls = &link_calls_}; }

  // Called on the loop.
  void MakeRoster(const ServerOptions& options) {
    lookup_ = MakeSystemLookup(&loop_);
    const auto make_link = [this, bytes = 2 * options.max_message_bytes,
                            security = options.worker_security](const std::string& address,
                                                                const std::string& name) {
      return MakeGrpcWorkerLink(MakeWorkerChannel(address, name, bytes, security), address,
                                link_loop());
    };
    roster_ =
        std::make_unique<WorkerRoster>(WorkerRoster::Surroundings{.loop = &loop_,
                                                                  .clock = &base::Clock::Real(),
                                                                  .workers = core_->workers(),
                                                                  .lookup = lookup_.get(),
                                                                  .make_link = make_link,
                                                                  .log = options.log});
  }

  // Disconnects from all workers. Requires: no call is running, so nothing else uses the workers.
  void LeaveWorkers() {
    RunOn(&loop_, [this] {
      roster_.reset();
      core_.reset();
    });
    link_calls_.Drain(kCancelGrace);
  }

  // Returns when the results of all earlier store calls have arrived on the loop.
  void FlushStore() {
    std::promise<void> answered;
    store_->Count([&](absl::StatusOr<int64_t>) { answered.set_value(); });
    answered.get_future().wait();
    RunOn(&loop_, [] {});
  }

  void OnReadiness(bool ready) {
    api_.SetReady(ready);
    base::MutexLock lock(&mutex_);
    ready_ = ready;
    hosts_->SetReady(ready_ && store_ok_);
    ready_changed_.NotifyAll();
  }

  // Called on any thread.
  void OnStore(const absl::Status& status) {
    api_.SetStore(status);
    base::MutexLock lock(&mutex_);
    store_ok_ = status.ok();
    hosts_->SetReady(ready_ && store_ok_);
  }

  const LogSink log_;
  ActiveCalls calls_;       // calls from clients
  ActiveCalls link_calls_;  // calls to workers
  // must outlive the loop, because the loop's tasks hold exchanges of the server
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<SessionStore> store_;
  EventLoop loop_;
  std::unique_ptr<NameLookup> lookup_;
  std::unique_ptr<FrontCore> core_;  // must be destroyed on the loop
  // destroyed before core_; null if the only worker is in this process
  std::unique_ptr<WorkerRoster> roster_;
  OpenAiApi api_;
  FrontServices services_;
  std::unique_ptr<GrpcHosts> hosts_;

  base::Mutex mutex_;
  base::CondVar ready_changed_;
  bool ready_ TIDEPOOL_GUARDED_BY(mutex_) = false;  // a worker accepts requests
  bool store_ok_ TIDEPOOL_GUARDED_BY(mutex_) = true;
  std::atomic<bool> hurried_ = false;
  base::Mutex shutdown_mutex_;
  bool down_ TIDEPOOL_GUARDED_BY(shutdown_mutex_) = false;
};

// A front with its own worker. The front shuts down first, because its responses are computed by
// the worker.
class ServeServer final : public Server {
 public:
  ServeServer(std::unique_ptr<WorkerServer> worker, std::unique_ptr<FrontServer> front)
      : worker_(std::move(worker)), front_(std::move(front)) {
    worker_->TellLiveness([this](const absl::Status& live) { front_->SetLive(live); });
  }
  ~ServeServer() override { worker_->TellLiveness(nullptr); }

  int port() const override { return front_->port(); }
  const std::string& address() const override { return front_->address(); }
  std::string http_address() const override { return front_->http_address(); }
  std::string admin_address() const override { return front_->admin_address(); }
  std::string probe_address() const override { return front_->probe_address(); }
  std::shared_ptr<grpc::Channel> InProcessChannel() override { return front_->InProcessChannel(); }
  void Change(const LiveOptions& options) override {
    front_->Change(options);
    worker_->Change(options);
  }
  void Shutdown(const ShutdownTimes& times) override {
    front_->Shutdown(times);
    worker_->Shutdown({});
  }

 private:
  std::unique_ptr<WorkerServer> worker_;
  std::unique_ptr<FrontServer> front_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> StartWorkerServer(const WorkerModel* model,
                                                          engine::Engine* engine,
                                                          const ServerOptions& options) {
  return WorkerServer::Start(model, engine, options);
}

absl::StatusOr<std::unique_ptr<Server>> StartFrontServer(std::unique_ptr<SessionStore> store,
                                                         const ServerOptions& options) {
  return FrontServer::Start(/*own_worker=*/nullptr, std::move(store), options);
}

absl::StatusOr<std::unique_ptr<Server>> StartServe(const WorkerModel* model, engine::Engine* engine,
                                                   std::unique_ptr<SessionStore> store,
                                                   const ServerOptions& options) {
  ServerOptions inner = options;
  // Only the front in this process can reach the worker, so no token is needed.
  inner.listen.clear();
  inner.admin_listen.clear();
  inner.probe_listen.clear();
  inner.authenticator = nullptr;
  inner.log = InfoAsDebug(options.log);
  ASSIGN_OR_RETURN(std::unique_ptr<WorkerServer> worker, WorkerServer::Start(model, engine, inner));
  ASSIGN_OR_RETURN(std::unique_ptr<FrontServer> front,
                   FrontServer::Start(worker->InProcessChannel(), std::move(store), options));
  if (!front->WaitReady(kOwnWorkerWait)) {
    return absl::InternalError("the worker in this process does not respond to its front");
  }
  return std::make_unique<ServeServer>(std::move(worker), std::move(front));
}

}  // namespace tidepool::service
