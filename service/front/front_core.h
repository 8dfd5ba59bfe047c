// FrontCore: the logic of a front without gRPC: workers, sessions, and running generations.
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

// Loop only, callbacks included, unless noted.
class FrontCore {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // All arguments outlive the core. `log` is called on the loop.
  FrontCore(Executor* loop, const base::Clock* clock, SessionStore* store, LogSink log,
            const FrontLimits& limits = {});

  WorkerSet* workers() { return &workers_; }
  FrontAdmin* admin() { return &admin_; }
  RequestLog* request_log() { return &request_log_; }
  // Applies to requests and responses that begin from now on.
  void SetLimits(const FrontLimits& limits);
  Executor* loop() { return loop_; }  // thread-safe
  // Write timeouts of gRPC streams.
  WriteTimeouts* untaken_writes() { return &untaken_writes_; }
  const ResponseBudget& whole_answers() const { return whole_answers_; }  // thread-safe

  // Returns null if the request was refused. In this case, the sink was finished. If the client has
  // sent the same request with this request_id before, returns the response that was begun then.
  std::shared_ptr<AnswerStream> Generate(GenerationInput input, GenerationSink* sink);
  // Like Generate, as one response. INVALID_ARGUMENT if it needs more than WholeAnswer::kMaxBytes
  // of memory. RESOURCE_EXHAUSTED with a retry hint if the collected responses use all of the
  // budget. `answer` counts this response, and outlives `done`.
  void Complete(GenerationInput input, WholeAnswer* answer, Done<v1::CompleteResponse> done,
                std::function<void(std::shared_ptr<AnswerStream>)> on_start);

  // The caller of a text call, and its deadline on the monotonic clock.
  struct TextAsker {
    std::string principal;
    absl::Duration deadline = absl::InfiniteDuration();
  };
  // RESOURCE_EXHAUSTED with a retry hint if too many such calls run, in total or for this
  // principal.
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
  // Returns null if the watch has already ended. In this case, the sink was finished.
  std::shared_ptr<StatsWatch> WatchStats(const v1::WatchStatsRequest& request,
                                         StatsWatchSink* sink);
  // Ends all watches with this status, and later ones too.
  void CloseWatches(const absl::Status& status) { watches_.Close(status); }

  const RequestMetricsMap& request_metrics() const { return request_metrics_; }
  const PrincipalUsageMap& principal_usage() const { return principal_usage_; }
  // Counts of all generations so far.
  const StreamTransitions& transitions() const { return failover_.transitions; }

  // Ends all generations, all readers of finished responses, and all later ones with this status.
  void CloseGenerations(const absl::Status& status);

 private:
  // Returns a worker for a text call. Any worker of the model will do.
  absl::StatusOr<PickedWorker> AnyWorker(absl::string_view model) const;
  template <typename Request, typename Response>
  using TextCall = void (WorkerLink::*)(Request, absl::Duration, Done<Response>);
  // Calls `call` on any worker when there is a slot.
  template <typename Request, typename Response>
  void AskAboutText(Request request, const TextAsker& asker, Done<Response> done,
                    TextCall<Request, Response> call);
  std::shared_ptr<AnswerStream> GenerateNamed(GenerationInput input, GenerationSink* sink);
  // The slots that a generation holds while it runs.
  struct Place {
    engine::AdmissionSlots::Place here;  // one of all slots of this front
    PrincipalQuotas::Place among_own;    // one of the principal's slots
  };
  // RESOURCE_EXHAUSTED if the front is full, or if the principal's limits are reached.
  absl::StatusOr<Place> FindPlace(const GenerationInput& input);
  std::shared_ptr<Generation> Begin(GenerationInput input, Place place, GenerationSink* sink);
  // Returns copies, because generations may end while the caller iterates.
  std::vector<std::shared_ptr<Generation>> Running() const;
  std::nullptr_t Refuse(const GenerationInput& input, absl::Status status, GenerationSink* sink);
  void OnEnd(const IdempotencyCache::Name& key, const MeasuredSink& measured,
             const absl::Status& end);
  // Keeps the time as long as the client may repeat the request.
  void KeepAskedTime(const IdempotencyCache::Name& key, const Generation& generation);
  // Periodically moves streams away from workers that are silent or stuck.
  void LeaveHangingWorkers();
  // Periodically deletes sessions whose TTL has passed, if there is a TTL.
  void ExpireSessions();
  // Calls back on the loop. UNAVAILABLE if the core was destroyed meanwhile.
  void ReadLog(const std::string& session_id, const std::string& principal,
               Done<SessionLogData> done);
  // INVALID_ARGUMENT if the log cannot be cut at this position; see PlanCut. The worker may respond
  // after the core was destroyed.
  void CutLog(SessionLogData log, int64_t position, Done<SessionLogData> done);

  Executor* loop_;
  const base::Clock* clock_;
  SessionStore* store_;
  FrontLimits limits_;
  bool expiring_ = false;  // ExpireSessions is scheduled
  engine::AdmissionSlots places_;
  engine::AdmissionSlots text_places_;  // for Tokenize and Detokenize calls
  WriteTimeouts untaken_writes_;
  const ResponseBudget whole_answers_;
  PrincipalQuotas quotas_;
  WorkerSet workers_;
  FrontAdmin admin_;
  StatsWatches watches_;
  IdempotencyCache named_;
  FirstRequestTimes asked_times_;
  const absl::Duration started_;
  Failover failover_;  // the generations have places in its queue
  // By principal and request_id.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Generation>> running_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
  RequestMetricsMap request_metrics_;
  PrincipalUsageMap principal_usage_;
  RequestLog request_log_;
  int64_t requests_total_ = 0;
  int64_t requests_failed_total_ = 0;
  std::optional<absl::Status> closed_;  // the status that CloseGenerations was given
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_CORE_H_
