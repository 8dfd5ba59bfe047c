// AdmissionSlots: places of requests that run or wait, and who has how many of them. A principal
// may have up to eight times as many as are free: alone 8/9 of all, two of them 8/17 each. So
// whoever asks for all of them leaves some, and a principal that has none finds one while the
// others give theirs back.
//
// The dynamic thresholds of A. K. Choudhury and E. L. Hahne, "Dynamic Queue Length Thresholds for
// Shared-Memory Packet Switches" (IEEE/ACM Transactions on Networking, 1998).
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
  // Of what is not taken, how many times as much one principal may have.
  static constexpr int64_t kShare = 8;

  // A place, which is given back when the last copy goes; it may outlive the shares.
  using Place = std::shared_ptr<void>;

  // `what` has the places, in errors: "the queue". Requires: places >= 0.
  AdmissionSlots(std::string what, int64_t places);

  // There are so many from now on; none that is taken is taken back. Requires: not negative.
  void SetPlaces(int64_t places);

  // RESOURCE_EXHAUSTED: all are taken, or the free ones are for others. Without authentication the
  // principal is empty, and may have all.
  absl::StatusOr<Place> Take(const std::string& principal);
  // What Take would say now.
  absl::Status Check(const std::string& principal) const;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // places hold it, too
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_ADMISSION_SLOTS_H_
