// Finds the models that the workers of a front serve, by their names.
#ifndef TIDEPOOL_SERVICE_FRONT_SERVED_MODELS_H_
#define TIDEPOOL_SERVICE_FRONT_SERVED_MODELS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "service/front/worker_set.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// Returns the models of all workers that have reported a state. Each model is listed once, with the
// aliases of all its workers.
std::vector<v1::Model> ServedModels(const WorkerSet& workers);

// Finds a model by its name or alias. An empty `name` means the only model. UNAVAILABLE if no
// worker has reported a state yet. NOT_FOUND if the name is unknown. INVALID_ARGUMENT if the name
// is empty and there are several models.
absl::StatusOr<v1::Model> FindModel(const WorkerSet& workers, absl::string_view name);

// Like the function above, for a session. If several models have this name, the one with this
// digest (a ModelIdentity) is preferred.
absl::StatusOr<v1::Model> FindModel(const WorkerSet& workers, absl::string_view name,
                                    absl::string_view digest);

// Picks a worker of the model, for a call about text that belongs to no session.
absl::StatusOr<PickedWorker> PickAnyWorker(const WorkerSet& workers, absl::string_view name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_SERVED_MODELS_H_
