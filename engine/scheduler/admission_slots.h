// AdmissionSlots: limits the number of requests that run or wait. Each request needs a slot
// ("place"), and slots are counted by principal. A principal may have at most eight times as many
// slots as are free. So a single principal gets at most 8/9 of all slots, and two get 8/17 each.
// Some slots are always left for a new principal, even before other principals return slots.
//
// The method is the dynamic thresholds of A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length
// Thresholds for Shared-Memory Packet Switches" (IEEE/ACM Transactions on Networking, 1998).
//
//   AdmissionSlots places("the queue", 1088);
//   ASSIGN_OR_RETURN(request->place, places.Take(principal));
#ifndef TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_SLOTS_H_
#define TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_SLOTS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tidepool::engine {

// Thread-safe.
class AdmissionSlots {
 public:
  // The maximum number of slots of one principal, as a multiple of the number of free slots.
  static constexpr int64_t kShare = 8;

  // Owns a slot. The slot is returned when the last copy of the Place is destroyed. A Place may
  // outlive the AdmissionSlots.
  using Place = std::shared_ptr<void>;

  // `what` names the resource in errors, for example "the queue". Requires: places >= 0.
  AdmissionSlots(std::string what, int64_t places);

  // Changes the number of slots. Requests keep the slots that they have. Requires: places >= 0.
  void SetPlaces(int64_t places);

  // Returns RESOURCE_EXHAUSTED if all slots are taken, or if the free slots are reserved for other
  // principals. Without authentication, the principal is empty and may take all slots.
  absl::StatusOr<Place> Take(const std::string& principal);
  // Returns the status that Take would return now.
  absl::Status Check(const std::string& principal) const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with all Places
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_SLOTS_H_
