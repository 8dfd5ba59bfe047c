// TrafficRun: sends what a plan says and collects what becomes of it.
#ifndef TIDEPOOL_SERVICE_CLI_TRAFFIC_RUN_H_
#define TIDEPOOL_SERVICE_CLI_TRAFFIC_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/base/event_loop.h"
#include "service/cli/traffic_client.h"
#include "service/cli/traffic_plan.h"
#include "service/cli/traffic_report.h"

namespace tidepool::service {

struct TrafficRunOptions {
  // Callers that each send when their last request has ended, or if it was refused, when the server
  // wants it back; 0: requests are sent at the plan's times, whatever became of those before.
  int64_t callers = 0;
  absl::Duration sending;   // since the start; nothing is sent after it
  absl::Duration patience;  // with what runs then; the rest is cancelled
  int64_t retries = 0;      // of a request that was refused, when the server wants it back
};

// All that a run needs; it outlives the run, and the client the loop.
struct TrafficRunParts {
  TrafficPlan* plan = nullptr;
  TrafficClient* client = nullptr;
  Executor* loop = nullptr;
  const base::Clock* clock = nullptr;
};

// Loop only, but for its making.
class TrafficRun {
 public:
  TrafficRun(const TrafficRunParts& parts, const TrafficRunOptions& options)
      : parts_(parts), options_(options) {}

  // Requires: called once. `on_outcome` takes each request's end; `on_end` is called behind the
  // last, and the run may go then.
  void Start(std::function<void(const RequestOutcome&)> on_outcome, std::function<void()> on_end);

 private:
  struct Request {
    TrafficRequest request;
    absl::Duration planned;
    absl::Duration sent;
    int64_t tries = 0;
  };

  absl::Duration Now() const { return parts_.clock->Monotonic() - started_; }
  // Sends what is due, and comes back for the rest.
  void SendDue();
  void SendAsCaller();
  void Send(std::shared_ptr<Request> request);
  void OnAnswer(const std::shared_ptr<Request>& request, TrafficAnswer answer);
  void Conclude(const Request& request, TrafficAnswer answer);
  // After the last moment of sending.
  void EndIfIdle();

  const TrafficRunParts parts_;
  const TrafficRunOptions options_;
  std::function<void(const RequestOutcome&)> on_outcome_;
  std::function<void()> on_end_;
  absl::Duration started_;
  TrafficRequest next_;  // without callers
  int64_t open_ = 0;     // requests without an outcome
  bool sending_over_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_RUN_H_
