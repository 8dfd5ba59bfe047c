// TrafficRun: sends the requests of a plan and collects their outcomes.
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
  // Callers that each send one request at a time. A caller waits until its last request has ended,
  // and after a refusal for the retry delay. 0: requests are sent at the plan's times, independent
  // of earlier ones.
  int64_t callers = 0;
  absl::Duration sending;   // since the start; nothing is sent later
  absl::Duration patience;  // wait for running requests; the rest is cancelled
  int64_t retries = 0;      // how often a refused request is sent again, after the retry delay
};

// Objects that a run uses. They outlive the run, and the client outlives the loop.
struct TrafficRunParts {
  TrafficPlan* plan = nullptr;
  TrafficClient* client = nullptr;
  Executor* loop = nullptr;
  const base::Clock* clock = nullptr;
};

// Only used on the loop, except for its constructor.
class TrafficRun {
 public:
  TrafficRun(const TrafficRunParts& parts, const TrafficRunOptions& options)
      : parts_(parts), options_(options) {}

  // Call once. `on_outcome` receives the end of each request. `on_end` is called after the last
  // one, and may delete the run.
  void Start(std::function<void(const RequestOutcome&)> on_outcome, std::function<void()> on_end);

 private:
  struct Request {
    TrafficRequest request;
    absl::Duration planned;
    absl::Duration sent;
    int64_t tries = 0;
  };

  absl::Duration Now() const { return parts_.clock->Monotonic() - started_; }
  // Sends the requests that are due and sets a timer for the next.
  void SendDue();
  void SendAsCaller();
  void Send(std::shared_ptr<Request> request);
  void OnAnswer(const std::shared_ptr<Request>& request, TrafficAnswer answer);
  void Conclude(const Request& request, TrafficAnswer answer);
  // Ends the run if nothing is open. Used once sending is over.
  void EndIfIdle();

  const TrafficRunParts parts_;
  const TrafficRunOptions options_;
  std::function<void(const RequestOutcome&)> on_outcome_;
  std::function<void()> on_end_;
  absl::Duration started_;
  TrafficRequest next_;  // the next request; unused with callers
  int64_t open_ = 0;     // requests without an outcome
  bool sending_over_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_RUN_H_
