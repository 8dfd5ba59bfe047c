// The gRPC services of a worker: tidepool.worker.v1.Worker and Admin for one engine.
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
#include "service/worker/run_session.h"
#include "service/worker/stall_detector.h"
#include "service/worker/worker_admin.h"
#include "service/worker/worker_model.h"
#include "tidepool/v1/admin.grpc.pb.h"
#include "tidepool/worker/v1/worker.grpc.pb.h"

namespace tidepool::service {

// Thread-safe. State that the worker's services share. Outlives the gRPC server.
class WorkerCore {
 public:
  // `model` and `engine` outlive the core; `log` is called on the loop.
  WorkerCore(const WorkerModel* model, engine::Engine* engine, std::string name,
             WorkerAdmin::Process process, LogSink log);
  ~WorkerCore();

  const WorkerModel& model() const { return *model_; }
  engine::Engine* engine() { return engine_; }
  Executor* loop() { return &loop_; }
  TaskPool* pool() { return &pool_; }
  TaskPool* text_pool() { return &text_pool_; }
  ActiveCalls* runs() { return &runs_; }
  ActiveCalls* unary_calls() { return &unary_calls_; }
  WorkerAdmin* admin() { return &admin_; }
  const std::string& name() const { return name_; }
  const LogSink* log() const { return &log_; }

  v1::WorkerStats Stats() const;
  worker::v1::WatchResponse Watch() const;  // loop only
  // Calls `on_liveness` with an error if the engine makes no progress for `timeout` while work is
  // pending, and with OK when it makes progress again. Fronts see this in the worker's state. Runs
  // on the loop until StopWatching. Loop only.
  using OnLiveness = std::function<void(const absl::Status& live)>;
  // Called with false when an expert's record is lost, and with true when no record is lost any
  // longer.
  using OnReadiness = std::function<void(bool ready)>;
  void WatchEngine(absl::Duration timeout, OnLiveness on_liveness, OnReadiness on_readiness);
  void StopWatching() { engine_watch_.reset(); }

  // Asks fronts to send no new requests. Requests that still arrive are accepted.
  void BeginDrain();
  bool draining() const { return draining_; }
  // Offers runs to other workers, except those that will end within `drain`.
  void HandOver(absl::Duration drain);
  // Ends running runs with UNAVAILABLE.
  void GiveUpRuns();

  // Loop only. A stream that gets Watch() at once and then every 250 ms.
  class Watcher {
   public:
    virtual ~Watcher() = default;
    virtual void Send(const worker::v1::WatchResponse& state) = 0;
  };
  void AddWatcher(Watcher* watcher);
  void RemoveWatcher(Watcher* watcher) { watchers_.erase(watcher); }
  // Registers a run, so that a drain can hand it over. Loop only.
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
  const uint64_t process_id_;  // value in WatchResponse
  std::atomic<bool> draining_ = false;
  ActiveCalls runs_;
  ActiveCalls unary_calls_;            // never closed
  std::set<Watcher*> watchers_;        // loop only
  std::set<RunSession*> sessions_;     // loop only
  std::optional<absl::Duration> end_;  // when the process ends, on the monotonic clock; loop only
  // Used on the loop only.
  struct EngineWatch {
    StallDetector detector;
    absl::Duration period;  // time between two checks
    OnLiveness on_liveness;
    OnReadiness on_readiness;
    bool stuck = false;
    bool ready = true;
  };
  std::optional<EngineWatch> engine_watch_;
  bool ticking_ = false;  // loop only
  TaskPool pool_;         // prompts, and texts that fronts need for requests
  TaskPool text_pool_;    // clients' text calls, which no principal's limit counts
  EventLoop loop_;        // last, so destroyed first
};

class WorkerService final : public worker::v1::Worker::CallbackService {
 public:
  // The Caller identity is trusted, because `gate` admits only fronts.
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

// Admin of a worker, called directly or by a front for its admins.
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
