// ExpertSource: provides the weights of experts. Each tier (resident, disk, device, remote) is an
// ExpertSource. The ExpertScheduler computes whatever its source has ready.
#ifndef TIDEPOOL_MOE_EXPERT_SOURCE_H_
#define TIDEPOOL_MOE_EXPERT_SOURCE_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"
#include "moe/policy/placement_policy.h"

namespace tidepool::moe {

// Where an expert was when its layer requested it.
enum class Found : uint8_t {
  kResident,  // in memory: a hit
  kFetched,   // had to be read: a miss
};

struct ReadyExpert {
  int32_t expert = 0;
  Found found = Found::kResident;
  bool leaves = false;  // not resident: its memory is reused once it is released
  const kernels::FfnWeights* weights = nullptr;  // valid until released or postponed
};

enum class Patience : uint8_t {
  kNone,      // return what is ready now
  kUntilOne,  // wait until an expert is ready
};

// Engine thread only.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;

  // Requests `experts` (ascending, distinct), which are the ones in `routing`. Called once per
  // layer and forward pass. Requires: the previous request has ended: all experts were given out
  // and released, or an error was returned.
  virtual void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) = 0;

  // Returns the requested experts that are ready and not yet given out. With Patience::kUntilOne,
  // an empty result means one of two things: all have been given out, or the next one needs the
  // memory of an expert with `leaves`, which must be released or postponed first. An error ends the
  // request and names the expert: DATA_LOSS (the record is damaged), UNAVAILABLE (the read failed),
  // or the error of writing a trace.
  virtual absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) = 0;

  // The caller no longer uses the weights of an expert that was given out.
  virtual void Release(int32_t expert) = 0;
  // Returns an expert with `leaves` unused. The source may reuse its memory, and must give it out
  // again later.
  virtual void Postpone(int32_t expert) = 0;

  // Names experts that a layer will probably request soon, the likeliest first. A source may read
  // them ahead. This does not change what it gives out, or how it counts hits and misses.
  virtual void PrefetchHint(int /*moe_layer*/, absl::Span<const int32_t> /*experts*/) {}
  // True if PrefetchHint has any effect now.
  virtual bool WantsHints() const { return false; }

  // No request is expected now, so buffered output may be written.
  virtual void Idle() {}
  // No request follows. If writing fails, the error names the file.
  virtual absl::Status Finish() { return absl::OkStatus(); }

  // These two have a value only if not all experts are in memory.
  virtual std::optional<OffloadStats> Stats() const { return std::nullopt; }
  virtual OffloadControl* control() { return nullptr; }
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_SOURCE_H_
