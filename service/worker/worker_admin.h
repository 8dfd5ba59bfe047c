// WorkerAdmin: the logic of a worker's Admin RPCs that change it, without gRPC. worker_service.h
// has GetStats.
#ifndef TIDEPOOL_SERVICE_WORKER_WORKER_ADMIN_H_
#define TIDEPOOL_SERVICE_WORKER_WORKER_ADMIN_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "tidepool/v1/admin.pb.h"

namespace tidepool::service {

// Thread-safe. Each function calls `done` once, either before it returns, or later on the engine's
// step thread. `done` must not block that thread.
class WorkerAdmin {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  // Functions of the process. Each may be empty.
  struct Process {
    // Returns the number of bytes that the process may still allocate. The bytes that must stay
    // free are already subtracted. nullopt if unknown.
    std::function<std::optional<int64_t>()> available_memory;
    // Starts to drain and then end the process. Must not block.
    std::function<void()> drain;
  };

  // `engine` must outlive this object.
  WorkerAdmin(std::string name, engine::Engine* engine, Process process)
      : name_(std::move(name)), engine_(engine), process_(std::move(process)) {}

  // These implement the Admin RPCs of the same names, for this worker. Error messages contain the
  // worker's name.
  void SetOffload(const v1::SetOffloadRequest& request, Done<v1::SetOffloadResponse> done);
  void RefreshExperts(const v1::RefreshExpertsRequest& request,
                      Done<v1::RefreshExpertsResponse> done);
  void GetPlacement(const v1::GetPlacementRequest& request, Done<v1::GetPlacementResponse> done);

  void Drain(const v1::DrainRequest& request, Done<v1::DrainResponse> done);

  // Returns NOT_FOUND if the request is for another worker.
  template <typename Request>
  absl::Status CheckWorkerId(const Request& request) const {
    if (!request.has_worker_id() || request.worker_id() == name_) return absl::OkStatus();
    return NoSuchWorker(request.worker_id());
  }

 private:
  absl::Status NoSuchWorker(const std::string& asked) const;
  absl::Status Named(const absl::Status& status) const;

  const std::string name_;
  engine::Engine* const engine_;
  const Process process_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_WORKER_WORKER_ADMIN_H_
