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
  // Number of callers that each send one request at a time. A caller sends its next request when
  // its last one has ended. If the last one was refused, the caller first waits for the retry
  // delay. 0: requests are sent at the plan's times, even if earlier ones still run.
  int64_t callers = 0;
  absl::Duration sending;   // no request is sent later than this after the start
  absl::Duration patience;  // then wait this long for running requests, and cancel the rest
  int64_t retries = 0;      // maximum resends of a refused request, after the retry delay
};

// Objects that a run uses. They must outlive the run. The client must outlive the loop.
struct TrafficRunParts {
  TrafficPlan* plan = nullptr;
  TrafficClient* client = nullptr;
  Executor* loop = nullptr;
  const base::Clock* clock = nullptr;
};

// All functions except for the constructor must be called on the loop.
class TrafficRun {
 public:
  TrafficRun(const TrafficRunParts& parts, const TrafficRunOptions& options)
      : parts_(parts), options_(options) {}

  // Must be called once. `on_outcome` is called when a request ends. `on_end` is called after the
  // last one, and may delete the run.
  void Start(std::function<void(const RequestOutcome&)> on_outcome, std::function<void()> on_end);

 private:
  struct Request {
    TrafficRequest request;
    absl::Duration planned;
    absl::Duration sent;
    int64_t tries = 0;
  };

  absl::Duration Now() const { return parts_.clock->Monotonic() - started_; }
  // Sends the requests whose time has come, and sets a timer for the next one.
  void SendDue();
  void SendAsCaller();
  void Send(std::shared_ptr<Request> request);
  void OnResponse(const std::shared_ptr<Request>& request, TrafficResponse response);
  void Conclude(const Request& request, TrafficResponse response);
  // Ends the run if no request is open. Called when no more requests will be sent.
  void EndIfIdle();

  const TrafficRunParts parts_;
  const TrafficRunOptions options_;
  std::function<void(const RequestOutcome&)> on_outcome_;
  std::function<void()> on_end_;
  absl::Duration started_;
  TrafficRequest next_;  // the next request of the plan; not used with callers
  int64_t open_ = 0;     // requests without an outcome
  bool sending_over_ = false;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_TRAFFIC_RUN_H_
