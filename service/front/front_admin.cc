#include "service/front/front_admin.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"

namespace tidepool::service {
namespace {

// Maximum time for a worker to respond. A worker responds between two steps. A step can take long
// if it reads the experts for a whole prompt.
constexpr absl::Duration kLongest = absl::Seconds(30);

// If a worker does not respond within kLongest, it is reported as unavailable, unless the caller's
// deadline has passed before.
absl::Status OfWorker(const absl::Status& status, absl::Duration asked_until,
                      absl::Duration deadline) {
  if (!absl::IsDeadlineExceeded(status) || asked_until >= deadline) return status;
  return absl::UnavailableError(absl::StrCat("no response within ", absl::FormatDuration(kLongest),
                                             ": the running step takes longer. The change may "
                                             "still be made when this step ends; retry later"));
}

// Returns the status for the case that no worker succeeded. It is the first worker's error, with
// the name of that worker and its retry hint.
template <typename Response>
absl::Status FailureOfAll(const Response& response, std::optional<absl::Duration> hint) {
  for (const v1::WorkerOffload& worker : response.workers()) {
    if (worker.status_code() == 0) return absl::OkStatus();
  }
  const v1::WorkerOffload& first = response.workers(0);
  const std::string name = absl::StrCat(
      "worker '", first.worker_id().empty() ? first.address() : first.worker_id(), "'");
  const std::string& message = first.status_message();
  const absl::Status failure(
      static_cast<absl::StatusCode>(first.status_code()),
      absl::StrContains(message, name) ? message : absl::StrCat(name, ": ", message));
  return hint.has_value() ? base::WithRetryAfter(failure, *hint) : failure;
}

}  // namespace

template <typename Request, typename Response, typename Finish>
void FrontAdmin::AskAll(Request request, absl::Duration deadline, Call<Request, Response> call,
                        Finish finish, Done<Response> done) {
  // Collects the responses of the workers. When the last one has arrived, sends the result.
  struct Gathering {
    Response response;
    size_t open = 0;
    std::optional<absl::Duration> hint;  // the retry hint in the error of the first worker
    Done<Response> done;
  };
  const auto asked = AskedWorkers(*workers_, request);
  if (!asked.ok()) return done(asked.status());
  if (asked->empty()) return done(absl::UnavailableError("no worker is known yet; retry later"));
  auto gathering = std::make_shared<Gathering>();
  gathering->open = asked->size();
  gathering->done = std::move(done);
  const absl::Duration until = std::min(deadline, clock_->Monotonic() + kLongest);
  request.clear_worker_id();
  for (const WorkerSet::Member* member : *asked) {
    auto* worker = gathering->response.add_workers();
    worker->set_worker_id(member->view.name);
    worker->set_address(member->link->address());
    (member->link.get()->*call)(
        request, until,
        [gathering, worker, finish, until, deadline](absl::StatusOr<Response> answer) {
          TakeAnswer(answer, OfWorker(answer.status(), until, deadline), worker);
          if (worker == &gathering->response.workers(0)) {
            gathering->hint = base::RetryAfterOf(answer.status());
          }
          if (--gathering->open > 0) return;
          const absl::Status status = finish(gathering->response, gathering->hint);
          if (!status.ok()) return gathering->done(status);
          gathering->done(std::move(gathering->response));
        });
  }
}

void FrontAdmin::SetOffload(v1::SetOffloadRequest request, absl::Duration deadline,
                            Done<v1::SetOffloadResponse> done) {
  AskAll<v1::SetOffloadRequest, v1::SetOffloadResponse>(
      std::move(request), deadline, &WorkerLink::SetOffload, FailureOfAll<v1::SetOffloadResponse>,
      std::move(done));
}

void FrontAdmin::RefreshExperts(v1::RefreshExpertsRequest request, absl::Duration deadline,
                                Done<v1::RefreshExpertsResponse> done) {
  AskAll<v1::RefreshExpertsRequest, v1::RefreshExpertsResponse>(
      std::move(request), deadline, &WorkerLink::RefreshExperts,
      FailureOfAll<v1::RefreshExpertsResponse>, std::move(done));
}

void FrontAdmin::GetPlacement(v1::GetPlacementRequest request, absl::Duration deadline,
                              Done<v1::GetPlacementResponse> done) {
  AskAll<v1::GetPlacementRequest, v1::GetPlacementResponse>(
      std::move(request), deadline, &WorkerLink::GetPlacement,
      [](const v1::GetPlacementResponse&, auto) { return absl::OkStatus(); }, std::move(done));
}

void FrontAdmin::Drain(v1::DrainRequest request, absl::Duration deadline,
                       Done<v1::DrainResponse> done) {
  AskAll<v1::DrainRequest, v1::DrainResponse>(
      std::move(request), deadline, &WorkerLink::Drain,
      [](const v1::DrainResponse&, auto) { return absl::OkStatus(); }, std::move(done));
}

}  // namespace tidepool::service
