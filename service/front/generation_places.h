// GenerationPlaces: limits how many generations run at a front, in total and per principal.
#ifndef TIDEPOOL_SERVICE_FRONT_GENERATION_PLACES_H_
#define TIDEPOOL_SERVICE_FRONT_GENERATION_PLACES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/scheduler/admission_slots.h"
#include "kernels/base/clock.h"
#include "service/front/generation.h"
#include "service/front/principal_quotas.h"

namespace tidepool::service {

// Use it on the loop only.
class GenerationPlaces {
 public:
  // The slots that a generation holds while it runs. A Place may outlive the GenerationPlaces.
  struct Place {
    engine::AdmissionSlots::Place here;  // one of the slots of this front
    PrincipalQuotas::Place among_own;    // one of the principal's slots
  };

  // The clock must outlive this object.
  GenerationPlaces(const base::Clock* clock, int64_t max_requests)
      : slots_("the front", max_requests), quotas_(clock) {}

  // RESOURCE_EXHAUSTED if all slots of the front are in use, or if a limit of the principal is
  // reached.
  absl::StatusOr<Place> Take(const GenerationInput& input);

 private:
  engine::AdmissionSlots slots_;
  PrincipalQuotas quotas_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_GENERATION_PLACES_H_
