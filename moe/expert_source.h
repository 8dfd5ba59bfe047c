// ExpertSource: where the weights of experts come from. Each tier (resident, disk, device, remote)
// is an ExpertSource; the ExpertScheduler computes whatever its source has ready.
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

// How an expert was found when its layer's routing became known, that is at Request.
enum class Found : uint8_t {
  kResident,  // its weights were in memory: a hit
  kFetched,   // they had to be read: a miss
};

struct ReadyExpert {
  int32_t expert = 0;
  Found found = Found::kResident;
  bool leaves = false;                           // not resident: its memory is reused once released
  const kernels::FfnWeights* weights = nullptr;  // valid until it is released or postponed
};

enum class Patience : uint8_t {
  kNone,      // what is ready now
  kUntilOne,  // waits until there is one
};

// Engine thread only.
class ExpertSource {
 public:
  virtual ~ExpertSource() = default;

  // Asks for `experts` (ascending, distinct), those that `routing` names; once per layer and
  // forward pass. Requires: the layer before has been drained (all given out and released, or an
  // error).
  virtual void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) = 0;

  // The requested experts that are ready and not yet given out. With Patience::kUntilOne an empty
  // result means that all have been given out, or that the next one needs the memory of one that
  // leaves, which must be released or postponed first. An error names the expert and ends the
  // request: DATA_LOSS (the record is damaged), UNAVAILABLE (the read failed), or the error of
  // writing a trace.
  virtual absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) = 0;

  // The weights of an expert that was given out are no longer used.
  virtual void Release(int32_t expert) = 0;
  // An expert that leaves is to be given out again; others may use its memory until then.
  virtual void Postpone(int32_t expert) = 0;

  // Experts that a layer will probably ask for soon, the likeliest first. A source may read them
  // ahead; what it gives out, and how it counts that, stays the same.
  virtual void PrefetchHint(int /*moe_layer*/, absl::Span<const int32_t> /*experts*/) {}
  // Whether PrefetchHint has any effect now.
  virtual bool WantsHints() const { return false; }

  // Nothing is asked for now: buffered output may be written.
  virtual void Idle() {}
  // Nothing is asked for any more. An error of writing names the file.
  virtual absl::Status Finish() { return absl::OkStatus(); }

  // Both only of a source whose experts are not all in memory.
  virtual std::optional<OffloadStats> Stats() const { return std::nullopt; }
  virtual OffloadControl* control() { return nullptr; }
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_SOURCE_H_
