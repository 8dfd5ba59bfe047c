#include "engine/scheduler/admission_slots.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

struct AdmissionSlots::State {
  absl::Status Check(const std::string& principal) const TIDEPOOL_REQUIRES(mutex) {
    const int64_t free = places - taken;
    if (free <= 0) {
      return absl::ResourceExhaustedError(
          absl::StrCat(what, " is full: ", taken, " requests are running or waiting; retry later"));
    }
    const auto own = taken_by.find(principal);
    if (principal.empty() || own == taken_by.end() || own->second < kShare * free) {
      return absl::OkStatus();
    }
    return absl::ResourceExhaustedError(absl::StrCat("'", principal, "' has ", own->second,
                                                     " of the ", taken,
                                                     " requests that run or wait, and the rest of ",
                                                     what, " is reserved for others; retry later"));
  }

  void GiveBack(const std::string& principal) {
    base::MutexLock lock(&mutex);
    --taken;
    const auto own = taken_by.find(principal);
    if (--own->second == 0) taken_by.erase(own);
  }

  std::string what;
  mutable base::Mutex mutex;
  int64_t places TIDEPOOL_GUARDED_BY(mutex) = 0;
  int64_t taken TIDEPOOL_GUARDED_BY(mutex) = 0;
  // Number of slots of each principal. Principals without slots have no entry.
  std::map<std::string, int64_t> taken_by TIDEPOOL_GUARDED_BY(mutex);
};

AdmissionSlots::AdmissionSlots(std::string what, int64_t places)
    : state_(std::make_shared<State>()) {
  state_->what = std::move(what);
  SetPlaces(places);
}

void AdmissionSlots::SetPlaces(int64_t places) {
  base::MutexLock lock(&state_->mutex);
  state_->places = places;
}

absl::Status AdmissionSlots::Check(const std::string& principal) const {
  base::MutexLock lock(&state_->mutex);
  return state_->Check(principal);
}

absl::StatusOr<AdmissionSlots::Place> AdmissionSlots::Take(const std::string& principal) {
  base::MutexLock lock(&state_->mutex);
  RETURN_IF_ERROR(state_->Check(principal));
  ++state_->taken;
  ++state_->taken_by[principal];
  return Place(nullptr, [state = state_, principal](void*) { state->GiveBack(principal); });
}

}  // namespace tidepool::engine
