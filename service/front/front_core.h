// FrontCore: the logic of a front: workers, sessions and running generations. It contains no gRPC.
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
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/base/response_budget.h"
#include "service/base/write_timeouts.h"
#include "service/front/failover.h"
#include "service/front/first_request_times.h"
#include "service/front/front_admin.h"
#include "service/front/front_limits.h"
#include "service/front/generation.h"
#include "service/front/generation_places.h"
#include "service/front/idempotency_cache.h"
#include "service/front/request_records.h"
#include "service/front/session_calls.h"
#include "service/front/stats_calls.h"
#include "service/front/text_calls.h"
#include "service/front/worker_set.h"
#include "service/store/session_store.h"
#include "tidepool/v1/admin.pb.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Use it on the loop only, unless a function says otherwise. Callbacks also run on the loop.
class FrontCore {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // All arguments must outlive this object. `log` is called on the loop.
  FrontCore(Executor* loop, const base::Clock* clock, SessionStore* store, LogSink log,
            const FrontLimits& limits = {});

  WorkerSet* workers() { return &workers_; }
  FrontAdmin* admin() { return &admin_; }
  SessionCalls* sessions() { return &sessions_; }
  TextCalls* texts() { return &texts_; }
  StatsCalls* stats() { return &stats_; }
  RequestRecords* requests() { return &requests_; }
  // The new limits apply to requests and responses that begin after this call.
  void SetLimits(const FrontLimits& limits);
  Executor* loop() { return loop_; }  // thread-safe
  // The timeouts of writes to gRPC streams.
  WriteTimeouts* untaken_writes() { return &untaken_writes_; }
  const ResponseBudget& response_budget() const { return response_budget_; }  // thread-safe

  // Begins a generation. If the request was refused, returns null, and has already called the
  // sink's Finish. If the client has sent the same request with the same request_id before, returns
  // the response that was begun at that time.
  std::shared_ptr<ResponseStream> Generate(GenerationInput input, GenerationSink* sink);
  // Does the same as Generate, but collects one response. INVALID_ARGUMENT if the response needs
  // more than WholeResponse::kMaxBytes of memory. RESOURCE_EXHAUSTED, with a retry hint, if the
  // collected responses of all requests use the whole ResponseBudget. `response` counts the memory
  // of this response. It must live until `done` has been called.
  void Complete(GenerationInput input, WholeResponse* response, Done<v1::CompleteResponse> done,
                std::function<void(std::shared_ptr<ResponseStream>)> on_start);

  void ListModels(Done<v1::ListModelsResponse> done);
  void GetModel(const v1::GetModelRequest& request, Done<v1::Model> done);

  // The counts of state changes of all generations until now.
  const StreamTransitions& transitions() const { return failover_.transitions; }

  // Ends all generations with this status, and also the streams of clients that still read finished
  // responses. Later generations end with this status, too.
  void CloseGenerations(const absl::Status& status);

 private:
  std::shared_ptr<ResponseStream> GenerateNamed(GenerationInput input, GenerationSink* sink);
  std::shared_ptr<Generation> Begin(GenerationInput input, GenerationPlaces::Place place,
                                    GenerationSink* sink);
  // Returns a copy of the list, because generations may end while the caller uses it.
  std::vector<std::shared_ptr<Generation>> Running() const;
  // Returns the name of the requested model, as workers report it, or "" if the model is unknown.
  std::string ModelName(const std::string& asked) const;
  std::nullptr_t Refuse(const GenerationInput& input, absl::Status status, GenerationSink* sink);
  void OnEnd(const IdempotencyCache::Name& key, const MeasuredSink& measured,
             const absl::Status& end);
  // Stores when the request was first sent, for as long as the client may repeat the request.
  void KeepAskedTime(const IdempotencyCache::Name& key, const Generation& generation);
  // Periodically moves streams away from workers that send nothing or are stuck.
  void LeaveHangingWorkers();
  // From now on, notifies failover_.queue when a worker becomes available.
  void TellQueueOfWorkers();
  Executor* loop_;
  const base::Clock* clock_;
  SessionStore* store_;
  FrontLimits limits_;
  GenerationPlaces places_;
  WriteTimeouts untaken_writes_;
  const ResponseBudget response_budget_;
  WorkerSet workers_;
  FrontAdmin admin_;
  SessionCalls sessions_;
  TextCalls texts_;
  IdempotencyCache named_;
  FirstRequestTimes asked_times_;
  Failover failover_;  // the tickets of the generations belong to its queue
  // The key is the principal and the request_id.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<Generation>> running_;
  const std::shared_ptr<int> alive_ = std::make_shared<int>();
  RequestRecords requests_;
  StatsCalls stats_;
  std::optional<absl::Status> closed_;  // the status that was passed to CloseGenerations
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_CORE_H_
