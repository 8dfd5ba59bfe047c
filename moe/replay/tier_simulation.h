// SimulateTier: a discrete-event simulation of DeviceExperts and the ExpertScheduler. It predicts
// the speed of a model whose experts are in the memory of a device and in the host's memory, from
// what each part costs.
//
//   ASSIGN_OR_RETURN(const TierCosts costs, ParseTierCosts(path, text));
//   ASSIGN_OR_RETURN(auto placement, MakePlacement(trace, slots, {"adaptive", {}}));
//   const TierResult result = SimulateTier(trace, {.costs = costs}, placement.get());
//
// The decisions are those of the engine: the placement and LaneCosts are the same classes, and
// tier_fidelity_test compares all counts and times with those of DeviceExperts. Time is virtual.
// There are three resources:
//   - The device runs ops in the order in which they are called.
//   - The copy lane runs copies one after the other. A copy into a buffer that was freed in the
//     current layer begins after all ops that were called before it.
//   - The CPU computes experts while the device runs.
// A layer first runs its part without routed experts on the device. Then the routing is known, and
// the device computes the experts that it has. LaneCosts divides the others between the copy lane
// and the CPU. When the last copy has ended, the device computes the copied experts. The layer ends
// when the device and the CPU have finished.
//
// Not simulated: hints (a trace has none), a host's memory that is smaller than all experts, the
// time of the placement's decisions, and the order in which BoundedMoeLayer computes long prompts.
#ifndef TIDEPOOL_MOE_REPLAY_TIER_SIMULATION_H_
#define TIDEPOOL_MOE_REPLAY_TIER_SIMULATION_H_

#include <cstdint>
#include <string>

#include "moe/policy/placement.h"
#include "moe/replay/tier_costs.h"
#include "moe/trace/trace.h"

namespace tidepool::moe {

struct TierOptions {
  TierCosts costs;
  int staging = 8;  // the device's buffers besides the slots; at least 1
};

// Totals of a simulation. Times are virtual.
struct TierResult {
  std::string policy;
  int64_t slots = 0;
  PlacementCounters counters;
  int64_t forwards = 0;

  // Each miss is counted once, in `copied` or in `computed_on_cpu`.
  int64_t copied = 0;            // copied and then computed by the device
  int64_t computed_on_cpu = 0;   // computed by the CPU
  int64_t copied_for_later = 0;  // part of computed_on_cpu that was also copied

  double seconds = 0;
  double device_seconds = 0;     // time in which the device ran ops
  double copy_seconds = 0;       // time in which the copy lane copied
  double cpu_seconds = 0;        // time in which the CPU computed experts
  double copy_wait_seconds = 0;  // time in which ops waited for copies

  int64_t decode_rows = 0;
  double decode_seconds = 0;  // time of the forward passes that have a row in the phase decode

  // Speed of decoding: rows in the phase decode per second. 0 if there are none.
  double tokens_per_s() const {
    return decode_seconds > 0 ? static_cast<double>(decode_rows) / decode_seconds : 0;
  }
};

// Requires: the placement has the trace's shape and has not been used before. The times of `costs`
// apply to each expert, whatever its size in the trace.
TierResult SimulateTier(const Trace& trace, const TierOptions& options, Placement* placement);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_REPLAY_TIER_SIMULATION_H_
