// The gRPC services of a worker: tidepool.worker.v1.Worker and Admin. Both services use the same
// engine. The worker reports here whether it is serving, draining or stuck.
#ifndef TIDEPOOL_SERVICE_WORKER_WORKER_SERVICE_H_
#define TIDEPOOL_SERVICE_WORKER_WORKER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "engine/engine.h"
#include "service/auth/grpc_caller.h"
#include "service/base/active_calls.h"
#include "service/base/event_loop.h"
#include "service/base/log_level.h"
#include "service/base/stats_watch.h"
#include "service/base/task_pool.h"
#include "service/worker/output_rules.h"
#include "service/worker/run_session.h"
#include "service/worker/stall_detector.h"
#include "service/worker/worker_admin.h"
#include "service/worker/worker_model.h"
#include "tidepool/v1/admin.grpc.pb.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::service {

// State that both services of a worker share. It outlives the gRPC server. Thread-safe.
class WorkerCore {
 public:
  // `model` and `engine` must outlive this object. `log` is called on the loop.
  WorkerCore(const WorkerModel* model, engine::Engine* engine, std::string name,
             WorkerAdmin::Process process, LogSink log);
  ~WorkerCore();

  const WorkerModel& model() const { return *model_; }
  engine::Engine* engine() { return engine_; }
  Executor* loop() { return &loop_; }
  TaskPool* pool() { return &pool_; }
  TaskPool* text_pool() { return &text_pool_; }
  // The pool for a request with this work.
  TaskPool* PoolFor(OutputWork work) { return work == OutputWork::kLong ? &compile_pool_ : &pool_; }
  ActiveCalls* runs() { return &runs_; }
  ActiveCalls* unary_calls() { return &unary_calls_; }
  WorkerAdmin* admin() { return &admin_; }
  const LogSink* log() const { return &log_; }

  v1::WorkerStats Stats() const;
  worker::v1::WatchResponse Watch() const;  // used on the loop only
  // Checks the engine regularly, until StopWatching. Calls `on_liveness` with an error if work is
  // pending and the engine has made no progress for `timeout`. Calls it with OK when the engine
  // makes progress again. Also reports a stuck engine to fronts, in the worker's state.
  // `on_liveness` and `on_readiness` are called on the loop. Call WatchEngine and StopWatching on
  // the loop only.
  using OnLiveness = std::function<void(const absl::Status& live)>;
  // Called with false when an expert's weights can no longer be read, and with true when all
  // experts can be read again.
  using OnReadiness = std::function<void(bool ready)>;
  void WatchEngine(absl::Duration timeout, OnLiveness on_liveness, OnReadiness on_readiness);
  void StopWatching() { engine_watch_.reset(); }

  // Asks fronts to send no new requests. Requests that still arrive are accepted.
  void BeginDrain();
  bool draining() const { return draining_; }
  // Asks the fronts to move the running responses to other workers, except those that will be
  // complete within `drain`.
  void HandOver(absl::Duration drain);
  // Ends the runs with UNAVAILABLE.
  void GiveUpRuns();

  // A stream to a front. It gets the result of Watch() at once, then every 250 ms, and after each
  // change of the state. Use it on the loop only.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void Send(const worker::v1::WatchResponse& state) = 0;
  };
  void AddWatcher(Watcher* watcher);
  void RemoveWatcher(Watcher* watcher) { watchers_.erase(watcher); }
  // Registers a run, so that HandOver and GiveUpRuns reach it. Call it on the loop only.
  void AddRun(RunSession* run);
  void RemoveRun(RunSession* run) { sessions_.erase(run); }

 private:
  void Tick();
  void TellWatchers();
  void LookAtEngine();

  const WorkerModel* model_;
  engine::Engine* engine_;
  const std::string name_;
  WorkerAdmin admin_;
  const LogSink log_;
  const absl::Duration started_;
  const uint64_t process_id_;  // sent in WatchResponse
  std::atomic<bool> draining_ = false;
  ActiveCalls runs_;
  ActiveCalls unary_calls_;         // never closed
  std::set<Watcher*> watchers_;     // used on the loop only
  std::set<RunSession*> sessions_;  // used on the loop only
  // when the process will end, on the monotonic clock; used on the loop only
  std::optional<absl::Duration> end_;
  // How the engine is checked. Used on the loop only.
  struct EngineWatch {
    StallDetector detector;
    absl::Duration period;  // time between two checks
    OnLiveness on_liveness;
    OnReadiness on_readiness;
    bool stuck = false;
    bool ready = true;
  };
  std::optional<EngineWatch> engine_watch_;
  bool ticking_ = false;  // used on the loop only
  // for Tokenize and Detokenize calls of clients, which are not counted in a principal's limits
  TaskPool text_pool_;
  EventLoop loop_;
  // The tasks of these pools post to the loop, so they are destroyed first.
  TaskPool pool_;  // for prompts, known grammars, and texts that fronts need to serve requests
  TaskPool compile_pool_;  // for requests whose grammars may have to be compiled
};

class WorkerService final : public worker::v1::Worker::CallbackService {
 public:
  // Requests contain the client's identity (Caller). It is trusted, because `gate` admits only
  // fronts.
  WorkerService(WorkerCore* core, const Gate& gate) : core_(core), gate_(gate) {}

  grpc::ServerUnaryReactor* Prepare(grpc::CallbackServerContext* context,
                                    const worker::v1::PrepareRequest* request,
                                    worker::v1::PrepareResponse* response) override;
  grpc::ServerBidiReactor<worker::v1::RunRequest, worker::v1::RunResponse>* Run(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<worker::v1::WatchResponse>* Watch(
      grpc::CallbackServerContext* context, const worker::v1::WatchRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const v1::TokenizeRequest* request,
                                     v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const v1::DetokenizeRequest* request,
                                       v1::DetokenizeResponse* response) override;

 private:
  WorkerCore* core_;
  const Gate gate_;
};

// The service Admin of a worker. Clients call it directly, or through a front.
class WorkerAdminService final
    : public v1::Admin::WithRawCallbackMethod_GetStats<
          v1::Admin::WithRawCallbackMethod_WatchStats<v1::Admin::WithRawCallbackMethod_SetOffload<
              v1::Admin::WithRawCallbackMethod_RefreshExperts<
                  v1::Admin::WithRawCallbackMethod_GetPlacement<
                      v1::Admin::WithRawCallbackMethod_Drain<v1::Admin::Service>>>>>> {
 public:
  WorkerAdminService(WorkerCore* core, const Gate& gate) : core_(core), gate_(gate) {}

  grpc::ServerUnaryReactor* GetStats(grpc::CallbackServerContext* context,
                                     const grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchStats(grpc::CallbackServerContext* context,
                                                         const grpc::ByteBuffer* request) override;
  grpc::ServerUnaryReactor* SetOffload(grpc::CallbackServerContext* context,
                                       const grpc::ByteBuffer* request,
                                       grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* RefreshExperts(grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* GetPlacement(grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;

 private:
  v1::GetStatsResponse Stats() const;

  WorkerCore* core_;
  const Gate gate_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_WORKER_SERVICE_H_
