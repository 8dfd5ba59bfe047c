#include "service/cli/traffic_run.h"

#include <optional>
#include <utility>

#include "kernels/base/retry_after.h"

namespace tidepool::service {
namespace {

// The delay before a retry if a refusal has no retry hint.
constexpr absl::Duration kDefaultWait = absl::Seconds(1);

bool IsRefusal(const TrafficResponse& response) {
  return response.arrivals.empty() && !response.status.ok() && !absl::IsCancelled(response.status);
}

absl::Duration WaitOf(const absl::Status& refusal) {
  return base::RetryAfterOf(refusal).value_or(kDefaultWait);
}

// Returns true if the refusal is temporary.
bool MayRetry(const absl::Status& refusal) {
  return absl::IsResourceExhausted(refusal) || absl::IsUnavailable(refusal);
}

}  // namespace

void TrafficRun::Start(std::function<void(const RequestOutcome&)> on_outcome,
                       std::function<void()> on_end) {
  on_outcome_ = std::move(on_outcome);
  on_end_ = std::move(on_end);
  started_ = parts_.clock->Monotonic();
  parts_.loop->PostAfter(options_.sending, [this] {
    sending_over_ = true;
    EndIfIdle();
  });
  // The timer holds no reference to the run, because the run may be deleted before the timer fires.
  parts_.loop->PostAfter(options_.sending + options_.patience,
                         [client = parts_.client] { client->CancelAll(); });
  if (options_.callers == 0) {
    next_ = parts_.plan->Next();
    return SendDue();
  }
  for (int64_t caller = 0; caller < options_.callers; ++caller) SendAsCaller();
}

void TrafficRun::SendDue() {
  while (next_.arrival <= Now()) {
    if (next_.arrival >= options_.sending) return;
    auto request = std::make_shared<Request>();
    request->planned = next_.arrival;
    request->request = std::exchange(next_, parts_.plan->Next());
    ++open_;
    Send(std::move(request));
  }
  if (next_.arrival >= options_.sending) return;
  parts_.loop->PostAfter(next_.arrival - Now(), [this] { SendDue(); });
}

void TrafficRun::SendAsCaller() {
  auto request = std::make_shared<Request>();
  request->planned = Now();
  request->request = parts_.plan->Next();
  ++open_;
  Send(std::move(request));
}

void TrafficRun::Send(std::shared_ptr<Request> request) {
  if (request->tries++ == 0) request->sent = Now();
  const TrafficRequest& message = request->request;
  parts_.client->Send(
      message, [this, request = std::move(request)](TrafficResponse response) mutable {
        parts_.loop->Post(
            [this, request = std::move(request), response = std::move(response)]() mutable {
              OnResponse(request, std::move(response));
            });
      });
}

void TrafficRun::OnResponse(const std::shared_ptr<Request>& request, TrafficResponse response) {
  const bool refused = IsRefusal(response);
  const absl::Duration wait = refused ? WaitOf(response.status) : absl::ZeroDuration();
  // If the retry delay ends in time, the run still exists when the timer fires.
  const bool in_time = Now() + wait < options_.sending;
  if (refused && MayRetry(response.status) && request->tries <= options_.retries && in_time) {
    return parts_.loop->PostAfter(wait, [this, request] { Send(request); });
  }
  // Schedule the caller's next request before the outcome is reported, because Conclude may end the
  // run.
  if (options_.callers > 0 && in_time) {
    if (!refused) {
      SendAsCaller();
    } else {
      parts_.loop->PostAfter(wait, [this] { SendAsCaller(); });
    }
  }
  Conclude(*request, std::move(response));
}

void TrafficRun::Conclude(const Request& request, TrafficResponse response) {
  RequestOutcome outcome = {.planned = request.planned,
                            .sent = request.sent,
                            .ended = Now(),
                            .priority = request.request.priority,
                            .arrivals = std::move(response.arrivals),
                            .status = std::move(response.status),
                            .prompt_tokens = response.prompt_tokens,
                            .cached_tokens = response.cached_tokens,
                            .retries = request.tries - 1};
  for (TokenArrival& arrival : outcome.arrivals) arrival.time -= started_;
  on_outcome_(outcome);
  --open_;
  EndIfIdle();
}

void TrafficRun::EndIfIdle() {
  if (sending_over_ && open_ == 0) on_end_();
}

}  // namespace tidepool::service
