#include "service/worker/worker_admin.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "kernels/base/retry_after.h"
#include "service/grpc/convert.h"

namespace tidepool::service {
namespace {

template <typename Response>
Response OfWorker(const std::string& name, const moe::OffloadSettings& settings) {
  Response response;
  v1::WorkerOffload* worker = response.add_workers();
  worker->set_worker_id(name);
  ToProto(settings, worker->mutable_settings());
  return response;
}

}  // namespace

absl::Status WorkerAdmin::NoSuchWorker(const std::string& asked) const {
  return absl::NotFoundError(
      absl::StrCat("no worker has the id '", asked, "'; this worker is '", name_, "'"));
}

absl::Status WorkerAdmin::Named(const absl::Status& status) const {
  const absl::Status named(status.code(), absl::StrCat("worker '", name_, "': ", status.message()));
  const std::optional<absl::Duration> wait = base::RetryAfterOf(status);
  return wait.has_value() ? base::WithRetryAfter(named, *wait) : named;
}

void WorkerAdmin::SetOffload(const v1::SetOffloadRequest& request,
                             Done<v1::SetOffloadResponse> done) {
  if (absl::Status status = CheckWorkerId(request); !status.ok()) return done(std::move(status));
  absl::StatusOr<moe::OffloadChange> change = FromProto(request);
  if (!change.ok()) return done(Named(change.status()));
  if (process_.available_memory) change->available_bytes = process_.available_memory();
  // Memory that the engine has reserved but not touched yet still counts as free on the machine.
  // But this memory is not available, so subtract it.
  if (change->available_bytes.has_value()) {
    *change->available_bytes -= engine_->Stats().untouched_bytes;
  }
  engine_->SetOffload(*change, [this, done](absl::StatusOr<moe::OffloadSettings> settings) {
    if (!settings.ok()) return done(Named(settings.status()));
    done(OfWorker<v1::SetOffloadResponse>(name_, *settings));
  });
}

void WorkerAdmin::RefreshExperts(const v1::RefreshExpertsRequest& request,
                                 Done<v1::RefreshExpertsResponse> done) {
  if (absl::Status status = CheckWorkerId(request); !status.ok()) return done(std::move(status));
  engine_->RefreshExperts([this, done](absl::StatusOr<moe::OffloadSettings> settings) {
    if (!settings.ok()) return done(Named(settings.status()));
    done(OfWorker<v1::RefreshExpertsResponse>(name_, *settings));
  });
}

void WorkerAdmin::Drain(const v1::DrainRequest& request, Done<v1::DrainResponse> done) {
  if (absl::Status status = CheckWorkerId(request); !status.ok()) return done(std::move(status));
  if (!process_.drain) {
    return done(Named(absl::FailedPreconditionError("it cannot end its process")));
  }
  process_.drain();
  v1::DrainResponse response;
  response.add_workers()->set_worker_id(name_);
  done(std::move(response));
}

void WorkerAdmin::GetPlacement(const v1::GetPlacementRequest& request,
                               Done<v1::GetPlacementResponse> done) {
  if (absl::Status status = CheckWorkerId(request); !status.ok()) return done(std::move(status));
  engine_->GetPlacement([this, done](absl::StatusOr<engine::ExpertPlacement> placement) {
    if (!placement.ok()) return done(Named(placement.status()));
    v1::GetPlacementResponse response;
    v1::WorkerPlacement* worker = response.add_workers();
    worker->set_worker_id(name_);
    ToProto(*placement, worker);
    done(std::move(response));
  });
}

}  // namespace tidepool::service
