#include "service/front/generation_places.h"

#include <utility>

#include "kernels/base/retry_after.h"
#include "kernels/base/status_macros.h"

namespace tidepool::service {

absl::StatusOr<GenerationPlaces::Place> GenerationPlaces::Take(const GenerationInput& input) {
  Place place;
  absl::StatusOr<engine::AdmissionSlots::Place> here = slots_.Take(input.principal);
  if (!here.ok()) return base::WithRetryAfter(here.status(), base::kUsualRetryAfter);
  place.here = *std::move(here);
  ASSIGN_OR_RETURN(place.among_own, quotas_.Acquire(input.principal, input.limits));
  return place;
}

}  // namespace tidepool::service
