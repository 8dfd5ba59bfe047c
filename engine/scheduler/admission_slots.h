// AdmissionSlots: the slots of requests that run or wait, counted by principal. A principal may
// have at most eight times as many slots as are free: one alone gets 8/9 of all, two get 8/17 each.
// So a principal that requests all slots leaves some free, and a new principal finds one while the
// others return theirs.
//
// These are the dynamic thresholds of A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length
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
  // The maximum slots of one principal, as a multiple of the free slots.
  static constexpr int64_t kShare = 8;

  // A slot, which its last copy returns. It may outlive the AdmissionSlots.
  using Place = std::shared_ptr<void>;

  // `what` is the name of the resource in errors, such as "the queue". Requires: places >= 0.
  AdmissionSlots(std::string what, int64_t places);

  // Changes the number of slots. Requests keep the slots they have. Requires: not negative.
  void SetPlaces(int64_t places);

  // RESOURCE_EXHAUSTED if all slots are taken, or if the free ones are reserved for other
  // principals. Without authentication, the principal is empty and may have all slots.
  absl::StatusOr<Place> Take(const std::string& principal);
  // What Take would return now.
  absl::Status Check(const std::string& principal) const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // shared with all slots
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_SLOTS_H_
