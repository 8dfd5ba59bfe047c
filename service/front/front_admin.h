// FrontAdmin: the calls of Admin about experts that a front passes on to its workers.
#ifndef TIDEPOOL_SERVICE_FRONT_FRONT_ADMIN_H_
#define TIDEPOOL_SERVICE_FRONT_FRONT_ADMIN_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/front/worker_set.h"
#include "tidepool/v1/admin.pb.h"

namespace tidepool::service {

// The members that a request with an optional worker_id is for. NOT_FOUND: no worker has this id.
template <typename Request>
absl::StatusOr<std::vector<const WorkerSet::Member*>> AskedWorkers(const WorkerSet& workers,
                                                                   const Request& request) {
  return workers.Named(request.has_worker_id() ? std::optional(request.worker_id()) : std::nullopt);
}

// Loop only, answers included. Each worker is given until `deadline`, and 30 s at most.
class FrontAdmin {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // Both outlive it.
  FrontAdmin(const base::Clock* clock, const WorkerSet* workers)
      : clock_(clock), workers_(workers) {}

  void SetOffload(v1::SetOffloadRequest request, absl::Time deadline,
                  Done<v1::SetOffloadResponse> done);
  void RefreshExperts(v1::RefreshExpertsRequest request, absl::Time deadline,
                      Done<v1::RefreshExpertsResponse> done);
  void GetPlacement(v1::GetPlacementRequest request, absl::Time deadline,
                    Done<v1::GetPlacementResponse> done);

 private:
  template <typename Request, typename Response>
  using Call = void (WorkerLink::*)(Request request, absl::Time deadline,
                                    WorkerLink::Done<Response> done);
  template <typename Request, typename Response, typename Finish>
  void AskAll(Request request, absl::Time deadline, Call<Request, Response> call, Finish finish,
              Done<Response> done);

  const base::Clock* clock_;
  const WorkerSet* workers_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_FRONT_ADMIN_H_
