// Oracles: policies that know the whole trace in advance. They give upper bounds for the number of
// hits: `belady` for every policy, `hindsight` for every fixed placement. If records differ in size
// between layers, another policy with fewer hits may read fewer bytes.
#ifndef TIDEPOOL_MOE_REPLAY_ORACLES_H_
#define TIDEPOOL_MOE_REPLAY_ORACLES_H_

#include <memory>

#include "moe/policy/placement_policy.h"
#include "moe/replay/trace.h"

namespace tidepool::moe {

// The offline optimum. At the start, the slots hold the experts that are needed first. Later,
// residents and misses compete for the slots, and the experts whose next use is latest lose. (An
// expert that is resident between two of its uses occupies a slot for that interval. So the task is
// to choose as many intervals as possible, with at most `slots` overlapping, and picking the
// nearest end first is optimal.) Requires: Decide is called for every entry of the trace, in order.
std::unique_ptr<PlacementPolicy> MakeBelady(const Trace& trace);

// The best fixed placement: the experts with the most uses in the whole trace.
std::unique_ptr<PlacementPolicy> MakeHindsight(const Trace& trace);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_REPLAY_ORACLES_H_
