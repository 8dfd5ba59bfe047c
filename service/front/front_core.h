// FrontCore: the front without its wire: workers, sessions, and the generations that run.
#ifndef TIDEPOOL_SERVICE_FRONT_FRONT_CORE_H_
#define TIDEPOOL_SERVICE_FRONT_FRONT_CORE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/scheduler/admission_slots.h"
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/base/response_budget.h"
#include "service/base/stats_watch.h"
#include "service/base/write_timeouts.h"
#include "service/front/failover.h"
#include "service/front/first_request_times.h"
#include "service/front/front_admin.h"
#include "service/front/front_limits.h"
#include "service/front/generation.h"
#include "service/front/idempotency_cache.h"
#include "service/front/principal_quotas.h"
#include "service/front/request_log.h"
#include "service/front/request_metrics.h"
#include "service/front/worker_set.h"
#include "service/store/session_store.h"
#include "tidepool/v1/admin.pb.h"
#include "tidepool/v1/inference.pb.h"
#include "tidepool/v1/sessions.pb.h"

namespace tidepool::service {

// Loop only, answers included, but for what is said otherwise.
class FrontCore {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // All outlive the core; `log` is called on the loop.
  FrontCore(Executor* loop, const base::Clock* clock, SessionStore* store, LogSink log,
            const FrontLimits& limits = {});

  WorkerSet* workers() { return &workers_; }
  FrontAdmin* admin() { return &admin_; }
  RequestLog* request_log() { return &request_log_; }
  // For what begins from now on.
  void SetLimits(const FrontLimits& limits);
  Executor* loop() { return loop_; }  // thread-safe
  // Of streams over gRPC.
  WriteTimeouts* untaken_writes() { return &untaken_writes_; }
  const ResponseBudget& whole_answers() const { return whole_answers_; }  // thread-safe

  // Null when the request was refused; the sink has been told then. A request_id that the client
  // gave before, with the same request, leads to the answer that was begun then.
  std::shared_ptr<AnswerStream> Generate(GenerationInput input, GenerationSink* sink);
  // Generate, in one answer. INVALID_ARGUMENT: that is past WholeAnswer::kMaxBytes in memory;
  // RESOURCE_EXHAUSTED with a hint: there is no room for it among the answers that are collected.
  // `answer` counts it, and outlives `done`.
  void Complete(GenerationInput input, WholeAnswer* answer, Done<v1::CompleteResponse> done,
                std::function<void(std::shared_ptr<AnswerStream>)> on_start);

  // Who asks about a text, and until when on the monotonic clock.
  struct TextAsker {
    std::string principal;
    absl::Duration deadline = absl::InfiniteDuration();
  };
  // RESOURCE_EXHAUSTED with a hint: too many such calls run, of all principals or of this one.
  void Tokenize(v1::TokenizeRequest request, const TextAsker& asker,
                Done<v1::TokenizeResponse> done);
  void Detokenize(v1::DetokenizeRequest request, const TextAsker& asker,
                  Done<v1::DetokenizeResponse> done);
  void ListModels(Done<v1::ListModelsResponse> done);
  void GetModel(const v1::GetModelRequest& request, Done<v1::Model> done);

  void CreateSession(const v1::CreateSessionRequest& request, const std::string& principal,
                     Done<v1::Session> done);
  void GetSession(const v1::GetSessionRequest& request, const std::string& principal,
                  Done<v1::Session> done);
  void ListSessions(const v1::ListSessionsRequest& request, const std::string& principal,
                    Done<v1::ListSessionsResponse> done);
  void DeleteSession(const v1::DeleteSessionRequest& request, const std::string& principal,
                     Done<v1::DeleteSessionResponse> done);
  void ForkSession(const v1::ForkSessionRequest& request, const std::string& principal,
                   Done<v1::Session> done);
  void TruncateSession(const v1::TruncateSessionRequest& request, const std::string& principal,
                       Done<v1::Session> done);

  void GetStats(const v1::GetStatsRequest& request, Done<v1::GetStatsResponse> done);
  // Null when it has ended already; the sink has been told then.
  std::shared_ptr<StatsWatch> WatchStats(const v1::WatchStatsRequest& request,
                                         StatsWatchSink* sink);
  // Ends those with this status, and those to come.
  void CloseWatches(const absl::Status& status) { watches_.Close(status); }

  const RequestMetricsMap& request_metrics() const { return request_metrics_; }
  const PrincipalUsageMap& principal_usage() const { return principal_usage_; }
  // Of all generations so far.
  const StreamTransitions& transitions() const { return failover_.transitions; }

  // Ends every generation, and whoever reads one that has ended, with this status, and those to
  // come.
  void CloseGenerations(const absl::Status& status);

 private:
  // A worker for a call about text, not about a prompt.
  absl::StatusOr<PickedWorker> AnyWorker(absl::string_view model) const;
  template <typename Request, typename Response>
  using TextCall = void (WorkerLink::*)(Request, absl::Duration, Done<Response>);
  // Calls it at any worker, once there is a place for it.
  template <typename Request, typename Response>
  void AskAboutText(Request request, const TextAsker& asker, Done<Response> done,
                    TextCall<Request, Response> call);
  std::shared_ptr<AnswerStream> GenerateNamed(GenerationInput input, GenerationSink* sink);
  // A generation's, for as long as it runs.
  struct Place {
    engine::AdmissionSlots::Place here;  // among all at this front
    PrincipalQuotas::Place among_own;    // of its principal, as its limits count
  };
  // RESOURCE_EXHAUSTED: the front has no room for it, or its principal's limits leave none.
  absl::StatusOr<Place> FindPlace(const GenerationInput& input);
  std::shared_ptr<Generation> Begin(GenerationInput input, Place place, GenerationSink* sink);
  // They may end while the caller goes through them.
  std::vector<std::shared_ptr<Generation>> Running() const;
  std::nullptr_t Refuse(const GenerationInput& input, absl::Status status, GenerationSink* sink);
  void OnEnd(const IdempotencyCache::Name& key, const MeasuredSink& measured,
             const absl::Status& end);
  // For as long as its client may come back to it.
  void KeepAskedTime(const IdempotencyCache::Name& key, const Generation& generation);
  // Takes streams away from workers that fell silent or are stuck, again and again for as long as
  // the core lives.
  void LeaveHangingWorkers();
  // Deletes what has outlived the TTL, now and then for as long as there is one.
  void ExpireSessions();
  // Answers on the loop, UNAVAILABLE where the core has gone before.
  void ReadLog(const std::string& session_id, const std::string& principal,
               Done<SessionLogData> done);
  // INVALID_ARGUMENT: there is no cutting at this position; see PlanCut. A worker's answer can come
  // after the core has gone.
  void CutLog(SessionLogData log, int64_t position, Done<SessionLogData> done);

  Executor* loop_;
  const base::Clock* clock_;
  SessionStore* store_;
  FrontLimits limits_;
  bool expiring_ = false;  // ExpireSessions comes again
  engine::AdmissionSlots places_;
  engine::AdmissionSlots text_places_;  // of calls about text
  WriteTimeouts untaken_writes_;
  const ResponseBudget whole_answers_;
  PrincipalQuotas quotas_;
  WorkerSet workers_;
  FrontAdmin admin_;
  StatsWatches watches_;
  IdempotencyCache named_;
  FirstRequestTimes asked_times_;
  const absl::Duration started_;
  Failover failover_;  // the generations hold places in it
  // By principal and request_id.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Generation>> running_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
  RequestMetricsMap request_metrics_;
  PrincipalUsageMap principal_usage_;
  RequestLog request_log_;
  int64_t requests_total_ = 0;
  int64_t requests_failed_total_ = 0;
  std::optional<absl::Status> closed_;  // what CloseGenerations was told
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_CORE_H_
