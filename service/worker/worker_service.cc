#include "service/worker/worker_service.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/grpc/check_request.h"
#include "service/grpc/convert.h"
#include "service/grpc/counted_reactor.h"
#include "service/grpc/raw_unary.h"
#include "service/grpc/stats_watch_reactor.h"
#include "service/grpc/status.h"
#include "service/worker/output_rules.h"
#include "service/worker/prompt.h"
#include "service/worker/run_session.h"
#include "service/worker/text_calls.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kWatchPeriod = absl::Milliseconds(250);
constexpr absl::Duration kLongestLook = absl::Seconds(1);
constexpr int kPoolThreads = 2;
// One thread for Tokenize and Detokenize calls of clients. The calls wait in their own queue, so
// prompts never wait for them.
constexpr int kTextThreads = 1;
// Only one thread compiles grammars, so that hostile schemas cannot take the CPU from running
// responses.
constexpr int kCompileThreads = 1;
// Names of queues for work that belongs to no principal. They contain spaces. A principal's name
// cannot contain spaces, so no principal has such a name.
constexpr char kTextLine[] =
    // one queue for all clients, because the worker does not know their principals
    "calls about text";
constexpr char kAdminLine[] = "calls of Admin";

// Returns false if the weights of an expert are lost, so that some requests must fail.
bool CanServeAll(const engine::EngineStats& stats) {
  return !stats.offload.has_value() || stats.offload->lost_records == 0;
}

uint64_t DrawSeed() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// Returns the resident memory of this process, or 0 if /proc does not report it.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

RunContext ContextOf(WorkerCore* core) {
  return {
      .model = &core->model(),
      .engine = core->engine(),
      .loop = core->loop(),
      .clock = &base::Clock::Real(),
      .constrain = [core](const std::string& line, OutputWork work, std::function<void()> task) {
        core->PoolFor(work)->Post(line, std::move(task));
      }};
}

// The gRPC stream of a Run call. It deletes itself on the loop, after all tasks that it has posted
// have run.
class RunReactor final
    : public grpc::ServerBidiReactor<worker::v1::RunRequest, worker::v1::RunResponse>,
      public RunTransport {
 public:
  // `admitted` is OK if the caller may start runs, otherwise the error.
  RunReactor(WorkerCore* core, grpc::CallbackServerContext* context, const absl::Status& admitted)
      : core_(core),
        context_(context),
        deadline_(DeadlineOf(*context)),
        session_(std::make_shared<RunSession>(ContextOf(core), this)) {
    session_->LogTo(core->log());
    entered_ = admitted.ok() ? core_->runs()->Enter() : admitted;
    if (!entered_.ok()) {
      core_->loop()->Post([this] { session_->Abandon(), Finish(entered_); });
      return;
    }
    core_->loop()->Post([core, session = session_] { core->AddRun(session.get()); });
    context_->AddInitialMetadata(kTakenByWorker, "1");
    StartSendInitialMetadata();
    StartRead(&incoming_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) {  // the peer sends no more messages, but it can still receive
      core_->loop()->Post([session = session_] { session->OnRequestsEnd(); });
      return;
    }
    core_->loop()->Post([session = session_, request = std::move(incoming_), deadline = deadline_] {
      session->OnRequest(request, deadline);
    });
    incoming_.Clear();
    StartRead(&incoming_);
  }
  void OnWriteDone(bool ok) override {
    core_->loop()->Post(
        [session = session_, ok] { ok ? session->OnWritten() : session->Cancel(); });
  }
  void OnCancel() override {
    core_->loop()->Post([session = session_] { session->Cancel(); });
  }
  void OnDone() override {
    core_->loop()->Post([this] { delete this; });
  }

  void Write(worker::v1::RunResponse response) override {
    outgoing_ = std::move(response);
    StartWrite(&outgoing_);
  }
  void Finish(absl::Status status) override {
    const bool leaves = core_->draining() && absl::IsUnavailable(status);
    context_->AddTrailingMetadata(kSentByWorker, leaves ? kWorkerDrains : kWorkerStays);
    grpc::ServerBidiReactor<worker::v1::RunRequest, worker::v1::RunResponse>::Finish(
        ToGrpcStatus(status));
  }

 private:
  ~RunReactor() override {
    session_->Abandon();
    core_->RemoveRun(session_.get());
    if (entered_.ok()) core_->runs()->Leave();
  }

  WorkerCore* core_;
  grpc::CallbackServerContext* context_;
  const absl::Duration deadline_;
  absl::Status entered_;
  std::shared_ptr<RunSession> session_;
  worker::v1::RunRequest incoming_;
  worker::v1::RunResponse outgoing_;
};

class WatchReactor final : public grpc::ServerWriteReactor<worker::v1::WatchResponse>,
                           public WorkerCore::Watcher {
 public:
  WatchReactor(WorkerCore* core, const Gate& gate, const grpc::CallbackServerContext* context)
      : core_(core), term_(context, gate) {
    core_->loop()->Post([this] { core_->AddWatcher(this); });
  }

  // If the front reads slowly, it gets the newest state when it reads again. The stream ends with
  // an error if the caller is no longer authorised as a front. The stream also ends when the
  // connection has reached its maximum age, so that the front must authenticate again.
  void Send(const worker::v1::WatchResponse& state) override {
    if (writing_ || finished_) return;
    if (term_.IsOver()) return End(grpc::Status::OK);
    if (const absl::Status term = term_.Check(); !term.ok()) return End(ToGrpcStatus(term));
    writing_ = true;
    state_ = state;
    StartWrite(&state_);
  }

  void OnWriteDone(bool ok) override {
    core_->loop()->Post([this, ok] {
      writing_ = false;
      if (!ok) End(grpc::Status::CANCELLED);
    });
  }
  void OnCancel() override {
    core_->loop()->Post([this] { End(grpc::Status::CANCELLED); });
  }
  void OnDone() override {
    core_->loop()->Post([this] { delete this; });
  }

 private:
  ~WatchReactor() override { core_->RemoveWatcher(this); }

  void End(const grpc::Status& status) {
    if (std::exchange(finished_, true)) return;
    Finish(status);
  }

  WorkerCore* core_;
  const StreamTerm term_;
  worker::v1::WatchResponse state_;
  bool writing_ = false;
  bool finished_ = false;
};

// Where the work of a unary call runs: the pool, and the queue in the pool.
struct WorkPlace {
  WorkerCore* core;
  TaskPool* pool;
  std::string line;
};

// Runs `work` in the pool, if the caller is authorised and still waits when the task starts. gRPC
// keeps the request and the response until the reactor finishes.
template <typename Response, typename Work>
grpc::ServerUnaryReactor* OnPool(const WorkPlace& place, const Gate& gate,
                                 grpc::CallbackServerContext* context, Response* response,
                                 Work work) {
  auto* const reactor = new CountedReactor();
  if (const auto caller = CallerOf(*context, gate); !caller.ok()) {
    reactor->Finish(ToGrpcStatus(caller.status()));
    return reactor;
  }
  reactor->StartSendInitialMetadata();
  // This cannot fail, because unary_calls() is never closed.
  reactor->Enter(place.core->unary_calls()).IgnoreError();
  place.pool->Post(place.line, [context, reactor, response, work = std::move(work)] {
    absl::StatusOr<Response> result =
        context->IsCancelled() ? absl::CancelledError("the caller has cancelled the call") : work();
    if (result.ok()) *response = *std::move(result);
    reactor->Finish(ToGrpcStatus(result.status()));
  });
  return reactor;
}

// Returns a function that runs `done` on the pool. The engine's step thread may call that function,
// and must not be delayed by `done`.
template <typename Response>
std::function<void(absl::StatusOr<Response>)> OnPool(
    WorkerCore* core, std::function<void(absl::StatusOr<Response>)> done) {
  return [core, done = std::move(done)](absl::StatusOr<Response> result) {
    core->pool()->Post(kAdminLine, [done, result = std::move(result)] { done(result); });
  };
}

}  // namespace

WorkerCore::WorkerCore(const WorkerModel* model, engine::Engine* engine, std::string name,
                       WorkerAdmin::Process process, LogSink log)
    : model_(model),
      engine_(engine),
      name_(std::move(name)),
      admin_(name_, engine, std::move(process)),
      log_(std::move(log)),
      started_(base::Clock::Real().Monotonic()),
      process_id_(DrawSeed()),
      text_pool_(kTextThreads),
      pool_(kPoolThreads),
      compile_pool_(kCompileThreads, TaskPool::Priority::kBackground) {}

WorkerCore::~WorkerCore() { loop_.Stop(); }

v1::WorkerStats WorkerCore::Stats() const {
  v1::WorkerStats stats;
  ToProto(engine_->Stats(), &stats);
  stats.set_worker_id(name_);
  stats.set_model(model_->name);
  stats.set_model_digest(model_->digest);
  stats.set_numerics_id(model_->numerics_id);
  stats.set_backend(model_->backend);
  stats.set_uptime_seconds(absl::ToDoubleSeconds(base::Clock::Real().Monotonic() - started_));
  stats.set_log_lines_dropped_total(log_.dropped_lines());
  stats.set_weight_bytes(model_->weight_bytes);
  stats.set_resident_bytes(ResidentBytes());
  return stats;
}

worker::v1::WatchResponse WorkerCore::Watch() const {
  const engine::EngineStats stats = engine_->Stats();
  worker::v1::WatchResponse state;
  state.set_worker_id(name_);
  state.set_process_id(process_id_);
  state.set_understands(kUnderstands);
  const bool stuck = (engine_watch_.has_value() && engine_watch_->stuck) || !CanServeAll(stats);
  state.set_state(draining_ ? worker::v1::DRAINING
                  : stuck   ? worker::v1::STUCK
                            : worker::v1::SERVING);
  state.set_progress(stats.progress);
  state.set_sequences_running(stats.sequences_running);
  state.set_sequences_waiting(stats.sequences_waiting);
  state.set_queued_prompt_tokens(stats.queued_prompt_tokens);
  state.set_prefill_tokens_per_second(stats.prefill_tokens_per_second);
  state.set_places(stats.places);
  state.set_room_wait_seconds(absl::ToDoubleSeconds(stats.room_wait));
  state.set_kv_blocks_free(stats.kv_blocks_free);
  state.set_kv_blocks_total(stats.kv_blocks_total);
  for (const uint64_t digest : engine_->PrefixDigests()) state.add_prefix_digests(digest);
  ToProto(*model_, state.mutable_model());
  return state;
}

void WorkerCore::WatchEngine(absl::Duration timeout, OnLiveness on_liveness,
                             OnReadiness on_readiness) {
  engine_watch_.emplace(EngineWatch{.detector = StallDetector(timeout),
                                    .period = std::min(timeout / 4, kLongestLook),
                                    .on_liveness = std::move(on_liveness),
                                    .on_readiness = std::move(on_readiness)});
  LookAtEngine();
}

void WorkerCore::LookAtEngine() {
  if (!engine_watch_.has_value()) return;
  const engine::EngineStats stats = engine_->Stats();
  const absl::Status live = engine_watch_->detector.Look({.at = base::Clock::Real().Monotonic(),
                                                          .work_pending = stats.work_pending,
                                                          .progress = stats.progress});
  if (std::exchange(engine_watch_->stuck, !live.ok()) != !live.ok()) {
    TellWatchers();
    engine_watch_->on_liveness(live);
  }
  const bool ready = CanServeAll(stats);
  if (std::exchange(engine_watch_->ready, ready) != ready) {
    TellWatchers();
    engine_watch_->on_readiness(ready);
  }
  loop_.PostAfter(engine_watch_->period, [this] { LookAtEngine(); });
}

void WorkerCore::BeginDrain() {
  draining_ = true;
  loop_.Post([this] { TellWatchers(); });
}

void WorkerCore::HandOver(absl::Duration drain) {
  loop_.Post([this, end = base::Clock::Real().Monotonic() + drain] {
    end_ = end;
    for (RunSession* run : sessions_) run->OfferMove(end);
  });
}

void WorkerCore::GiveUpRuns() {
  loop_.Post([this] {
    for (RunSession* run : sessions_) run->GiveUp();
  });
}

void WorkerCore::AddRun(RunSession* run) {
  sessions_.insert(run);
  if (end_.has_value()) run->OfferMove(*end_);
}

void WorkerCore::AddWatcher(Watcher* watcher) {
  watchers_.insert(watcher);
  watcher->Send(Watch());
  if (ticking_) return;
  ticking_ = true;
  loop_.PostAfter(kWatchPeriod, [this] { Tick(); });
}

void WorkerCore::TellWatchers() {
  const worker::v1::WatchResponse state = Watch();
  for (Watcher* watcher : watchers_) watcher->Send(state);
}

void WorkerCore::Tick() {
  ticking_ = !watchers_.empty();
  if (!ticking_) return;
  TellWatchers();
  loop_.PostAfter(kWatchPeriod, [this] { Tick(); });
}

grpc::ServerUnaryReactor* WorkerService::Prepare(grpc::CallbackServerContext* context,
                                                 const worker::v1::PrepareRequest* request,
                                                 worker::v1::PrepareResponse* response) {
  context->AddInitialMetadata(kTakenByWorker, "1");
  worker::v1::Start output;
  CopyConstraint(request->request(), &output);
  TaskPool* const pool = core_->PoolFor(WorkFor(core_->model(), output));
  return OnPool({core_, pool, request->caller().principal()}, gate_, context, response,
                [core = core_, request] {
                  return service::Prepare(*request, {.model = &core->model(),
                                                     .now = base::Clock::Real().Now(),
                                                     .drawn_seed = DrawSeed(),
                                                     .salt = request->caller().principal()});
                });
}

grpc::ServerBidiReactor<worker::v1::RunRequest, worker::v1::RunResponse>* WorkerService::Run(
    grpc::CallbackServerContext* context) {
  return new RunReactor(core_, context, CallerOf(*context, gate_).status());
}

grpc::ServerWriteReactor<worker::v1::WatchResponse>* WorkerService::Watch(
    grpc::CallbackServerContext* context, const worker::v1::WatchRequest*) {
  return new WatchReactor(core_, gate_, context);
}

grpc::ServerUnaryReactor* WorkerService::Tokenize(grpc::CallbackServerContext* context,
                                                  const v1::TokenizeRequest* request,
                                                  v1::TokenizeResponse* response) {
  return OnPool(
      {core_, core_->text_pool(), kTextLine}, gate_, context, response,
      [core = core_, request] { return TokenizeFor(core->model(), *request, absl::Now()); });
}

grpc::ServerUnaryReactor* WorkerService::Detokenize(grpc::CallbackServerContext* context,
                                                    const v1::DetokenizeRequest* request,
                                                    v1::DetokenizeResponse* response) {
  WorkPlace place = {core_, core_->text_pool(), kTextLine};
  const auto principal = context->client_metadata().find(kForRequestOf);
  if (principal != context->client_metadata().end()) {
    place.pool = core_->pool();
    place.line = std::string(principal->second.data(), principal->second.size());
  }
  return OnPool(place, gate_, context, response,
                [core = core_, request] { return DetokenizeFor(core->model(), *request); });
}

v1::GetStatsResponse WorkerAdminService::Stats() const {
  v1::GetStatsResponse answer;
  *answer.add_workers() = core_->Stats();
  return answer;
}

grpc::ServerUnaryReactor* WorkerAdminService::GetStats(grpc::CallbackServerContext* context,
                                                       const grpc::ByteBuffer* request,
                                                       grpc::ByteBuffer* response) {
  return AnswerUnary<v1::GetStatsRequest, v1::GetStatsResponse>(
      {gate_, core_->unary_calls()}, context, request, response,
      [this](const Caller&, const v1::GetStatsRequest& asked, auto done) {
        if (absl::Status status = core_->admin()->CheckWorkerId(asked); !status.ok()) {
          return done(std::move(status));
        }
        done(Stats());
      });
}

grpc::ServerWriteReactor<grpc::ByteBuffer>* WorkerAdminService::WatchStats(
    grpc::CallbackServerContext* context, const grpc::ByteBuffer* request) {
  return new StatsWatchReactor(
      core_->loop(), gate_, context, *request,
      [this](const v1::WatchStatsRequest& asked, StatsWatchSink* sink) {
        auto watch = std::make_shared<StatsWatch>(
            core_->loop(), sink, [this, wrong = core_->admin()->CheckWorkerId(asked)](auto done) {
              wrong.ok() ? done(Stats()) : done(wrong);
            });
        watch->Start(asked);
        return watch;
      });
}

grpc::ServerUnaryReactor* WorkerAdminService::SetOffload(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request,
                                                         grpc::ByteBuffer* response) {
  return AnswerUnary<v1::SetOffloadRequest, v1::SetOffloadResponse>(
      {gate_, core_->unary_calls()}, context, request, response,
      [this](const Caller&, const v1::SetOffloadRequest& asked, auto done) {
        core_->admin()->SetOffload(asked, OnPool<v1::SetOffloadResponse>(core_, std::move(done)));
      });
}

grpc::ServerUnaryReactor* WorkerAdminService::RefreshExperts(grpc::CallbackServerContext* context,
                                                             const grpc::ByteBuffer* request,
                                                             grpc::ByteBuffer* response) {
  return AnswerUnary<v1::RefreshExpertsRequest, v1::RefreshExpertsResponse>(
      {gate_, core_->unary_calls()}, context, request, response,
      [this](const Caller&, const v1::RefreshExpertsRequest& asked, auto done) {
        core_->admin()->RefreshExperts(asked,
                                       OnPool<v1::RefreshExpertsResponse>(core_, std::move(done)));
      });
}

grpc::ServerUnaryReactor* WorkerAdminService::GetPlacement(grpc::CallbackServerContext* context,
                                                           const grpc::ByteBuffer* request,
                                                           grpc::ByteBuffer* response) {
  return AnswerUnary<v1::GetPlacementRequest, v1::GetPlacementResponse>(
      {gate_, core_->unary_calls()}, context, request, response,
      [this](const Caller&, const v1::GetPlacementRequest& asked, auto done) {
        core_->admin()->GetPlacement(asked,
                                     OnPool<v1::GetPlacementResponse>(core_, std::move(done)));
      });
}

grpc::ServerUnaryReactor* WorkerAdminService::Drain(grpc::CallbackServerContext* context,
                                                    const grpc::ByteBuffer* request,
                                                    grpc::ByteBuffer* response) {
  return AnswerUnary<v1::DrainRequest, v1::DrainResponse>(
      {gate_, core_->unary_calls()}, context, request, response,
      [this](const Caller&, const v1::DrainRequest& asked, auto done) {
        core_->admin()->Drain(asked, std::move(done));
      });
}

}  // namespace tidepool::service
