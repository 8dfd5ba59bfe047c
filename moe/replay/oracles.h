// Oracles: policies that know the whole trace in advance. Their hits are upper bounds: no policy
// has more hits than `belady`, and no fixed placement has more than `hindsight`. If the sizes of
// records differ between layers, a policy with fewer hits may still read fewer bytes.
#ifndef TIDEPOOL_MOE_REPLAY_ORACLES_H_
#define TIDEPOOL_MOE_REPLAY_ORACLES_H_

#include <memory>

#include "moe/policy/placement_policy.h"
#include "moe/trace/trace.h"

namespace tidepool::moe {

// The offline optimum (Belady). At the start, the slots contain the experts that are needed first.
// Later, the slots go to the residents and misses whose next uses are nearest. (An expert that
// stays resident between two of its uses occupies a slot for that interval. So the task is to
// choose as many intervals as possible such that at most `slots` overlap. It is optimal to choose
// intervals with the nearest end first.) Requires: Decide is called for every entry of the trace,
// in order.
std::unique_ptr<PlacementPolicy> MakeBelady(const Trace& trace);

// The best fixed placement: the experts with the most uses in the whole trace.
std::unique_ptr<PlacementPolicy> MakeHindsight(const Trace& trace);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_REPLAY_ORACLES_H_
