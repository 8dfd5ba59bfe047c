// ExpertSource: provides the weights of experts. Experts can be in memory, on disk, on another
// device or on another machine, and each of these can have its own ExpertSource. The
// ExpertScheduler computes the experts that its source has ready.
#ifndef TIDEPOOL_MOE_EXPERT_SOURCE_H_
#define TIDEPOOL_MOE_EXPERT_SOURCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// Where an expert was when a layer requested it.
enum class Found : uint8_t {
  kResident,  // it was in memory: a hit
  kFetched,   // it had to be read: a miss
};

// Where the weights of an expert are. This determines which lane of the ExpertScheduler computes
// the expert.
enum class Place : uint8_t {
  kBackend,  // in the memory of the scheduler's backend
  kHost,     // in the host's memory, while the backend is a device: the CPU computes it
};

struct ReadyExpert {
  int32_t expert = 0;
  Found found = Found::kResident;
  Place place = Place::kBackend;
  // true if the expert is not resident, so that its memory is reused after the release
  bool leaves = false;
  const kernels::FfnWeights* weights = nullptr;  // valid until the expert is released or postponed
};

// The work of the CPU for one layer, while the scheduler's backend is a device.
struct HostWork {
  int64_t bytes = 0;      // sum of the experts' bytes
  int64_t row_bytes = 0;  // sum over the experts of bytes * rows
  absl::Duration time;
};

enum class Patience : uint8_t {
  kNone,      // return the experts that are ready now, which may be none
  kUntilOne,  // wait until at least one expert is ready
};

// Engine thread only.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;

  // Requests `experts`, which are the distinct ids in `routing`, in ascending order. Called once
  // for each layer in a forward pass. Requires: the previous request has ended. It ends when all
  // its experts were given out (by NextReady) and released, or when NextReady returns an error. The
  // arguments' memory must be valid until then.
  //
  // With HostLane::kOn, experts may be given out with Place::kHost. The caller must use and release
  // all experts that NextReady gave out before it calls NextReady again.
  virtual void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) = 0;

  // Gives out the requested experts that are ready and were not given out yet. With
  // Patience::kUntilOne, an empty result means one of two things. Either all experts have been
  // given out, or the next one needs memory, so that the caller must release or postpone an expert
  // with `leaves` first. An error ends the request and names the expert: DATA_LOSS if the record is
  // damaged, UNAVAILABLE if the read failed, or the error of writing a trace.
  virtual absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) = 0;

  // The caller calls this when it no longer uses the weights of an expert that was given out.
  virtual void Release(int32_t expert) = 0;
  // Takes back an expert with `leaves` that the caller has not used. The source may reuse the
  // expert's memory, and must give out the expert again later.
  virtual void Postpone(int32_t expert) = 0;

  // Names experts that a layer will probably request soon, the most probable first. The source may
  // read them ahead. Hints do not change which experts the source gives out, nor how it counts hits
  // and misses.
  virtual void PrefetchHint(int /*moe_layer*/, absl::Span<const int32_t> /*experts*/) {}
  // Returns whether PrefetchHint has any effect now.
  virtual bool WantsHints() const { return false; }

  // Reports how long the CPU took for experts with Place::kHost.
  virtual void NoteHostWork(const HostWork& /*work*/) {}

  // Called when no request is expected soon, so that the source may write buffered output.
  virtual void Idle() {}
  // Called after the last request. If a file cannot be written, the error names it.
  virtual absl::Status Finish() { return absl::OkStatus(); }

  // Both functions return a value only if some experts may not be in memory.
  virtual std::optional<OffloadStats> Stats() const { return std::nullopt; }
  virtual OffloadControl* control() { return nullptr; }
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_SOURCE_H_
