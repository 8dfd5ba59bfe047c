// Where experts' weights come from. Tiers (resident, disk, device, remote) are ExpertSources; the
// ExpertScheduler computes whatever its source has ready.
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
  kFetched,   // they had to be brought: a miss
};

struct ReadyExpert {
  int32_t expert = 0;
  Found found = Found::kResident;
  bool leaves = false;                           // once released, its memory is for others
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

  // Asks for `experts` (ascending, distinct), those that `routing` names. The routing of a layer
  // becomes known here, once per forward. Requires that the layer before has been drained: all
  // given out and released, or an error.
  virtual void Request(const LayerRouting& routing, absl::Span<const int32_t> experts) = 0;

  // The requested experts that are ready and not yet given out. With Patience::kUntilOne none means
  // that all have been given out, or that there is no memory to bring the next one into until one
  // that leaves is released or postponed. An error names the expert and ends the request, and what
  // it has given out or not is forgotten: DATA_LOSS (a record that is lost), UNAVAILABLE (a failed
  // read), and of a source that writes down what is asked for, the error of writing.
  virtual absl::StatusOr<std::vector<ReadyExpert>> NextReady(Patience patience) = 0;

  // Of an expert that was given out: its weights are no longer used.
  virtual void Release(int32_t expert) = 0;
  // Of one that leaves: it is to be given out again, and its memory may serve others until then.
  virtual void Postpone(int32_t expert) = 0;

  // Experts that a layer will probably ask for soon, the likeliest first. A source may begin to
  // bring them; what it gives out, and how it counts that, stays the same.
  virtual void Expect(int /*moe_layer*/, absl::Span<const int32_t> /*experts*/) {}
  // Whether Expect has a use.
  virtual bool WantsExpectations() const { return false; }

  // Nothing will be asked for a while: what was only noted so far is written.
  virtual void Idle() {}
  // Nothing is asked for any more. The error of what could not be written, with the file's name.
  virtual absl::Status Finish() { return absl::OkStatus(); }

  // Of a source that brings experts from elsewhere.
  virtual std::optional<OffloadStats> Stats() const { return std::nullopt; }
  // The same; null for others.
  virtual OffloadControl* control() { return nullptr; }
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_EXPERT_SOURCE_H_
