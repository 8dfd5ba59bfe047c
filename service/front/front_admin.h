// FrontAdmin: the Admin calls that a front forwards to its workers.
#ifndef TIDEPOOL_SERVICE_FRONT_FRONT_ADMIN_H_
#define TIDEPOOL_SERVICE_FRONT_FRONT_ADMIN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/front/worker_set.h"
#include "tidepool/v1/admin.pb.h"

namespace tidepool::service {

// Returns the workers that a request is for: the worker with the request's worker_id, or all
// workers if the request has no worker_id. NOT_FOUND if no worker has this id.
template <typename Request>
absl::StatusOr<std::vector<const WorkerSet::Member*>> AskedWorkers(const WorkerSet& workers,
                                                                   const Request& request) {
  std::vector<const WorkerSet::Member*> asked;
  for (const auto& member : workers.members()) {
    if (!request.has_worker_id() || request.worker_id() == member->view.name) {
      asked.push_back(member.get());
    }
  }
  if (!asked.empty() || !request.has_worker_id()) return asked;
  return absl::NotFoundError(absl::StrCat("no worker has the id '", request.worker_id(), "'"));
}

// Sets the fields of `worker`, a message with a worker's id, address and status. The fields are
// copied from the worker's response, if it sent one. The status is set to `status`. The address
// does not change, because the front knows it.
template <typename Response, typename Worker>
void TakeAnswer(const absl::StatusOr<Response>& answer, const absl::Status& status,
                Worker* worker) {
  const std::string address = worker->address();
  if (answer.ok() && answer->workers_size() == 1) *worker = answer->workers(0);
  worker->set_address(address);
  worker->set_status_code(static_cast<int>(status.code()));
  worker->set_status_message(std::string(status.message()));
}

// Use it on the loop only. Callbacks also run there. Each worker must respond before `deadline`,
// and within 30 s.
class FrontAdmin {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // Both pointers must outlive this object.
  FrontAdmin(const base::Clock* clock, const WorkerSet* workers)
      : clock_(clock), workers_(workers) {}

  void SetOffload(v1::SetOffloadRequest request, absl::Duration deadline,
                  Done<v1::SetOffloadResponse> done);
  void RefreshExperts(v1::RefreshExpertsRequest request, absl::Duration deadline,
                      Done<v1::RefreshExpertsResponse> done);
  void GetPlacement(v1::GetPlacementRequest request, absl::Duration deadline,
                    Done<v1::GetPlacementResponse> done);
  void Drain(v1::DrainRequest request, absl::Duration deadline, Done<v1::DrainResponse> done);

 private:
  template <typename Request, typename Response>
  using Call = void (WorkerLink::*)(Request request, absl::Duration deadline,
                                    WorkerLink::Done<Response> done);
  template <typename Request, typename Response, typename Finish>
  void AskAll(Request request, absl::Duration deadline, Call<Request, Response> call, Finish finish,
              Done<Response> done);

  const base::Clock* clock_;
  const WorkerSet* workers_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_ADMIN_H_
