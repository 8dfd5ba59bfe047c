// The models that the workers of a front serve, and their names.
#ifndef TIDEPOOL_SERVICE_FRONT_SERVED_MODELS_H_
#define TIDEPOOL_SERVICE_FRONT_SERVED_MODELS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "service/front/worker_set.h"
#include "tidepool/v1/inference.pb.h"

namespace tidepool::service {

// The distinct models of all workers that have reported, with the aliases of all their workers.
std::vector<v1::Model> ServedModels(const WorkerSet& workers);

// `name` is a model's name or alias. Empty means the only model. UNAVAILABLE if no worker has
// reported yet, NOT_FOUND for an unknown name, INVALID_ARGUMENT if the name is empty and there are
// several models.
absl::StatusOr<v1::Model> FindModel(const WorkerSet& workers, absl::string_view name);

// Same for a session: of several models with this name, prefers the one with this ModelIdentity.
absl::StatusOr<v1::Model> FindModel(const WorkerSet& workers, absl::string_view name,
                                    absl::string_view digest);

// Picks a worker of the model for a call about text that belongs to no session.
absl::StatusOr<PickedWorker> PickAnyWorker(const WorkerSet& workers, absl::string_view name);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_SERVED_MODELS_H_
