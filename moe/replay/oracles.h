// Oracles: policies that have seen the trace they are run on. No policy without that knowledge has
// more hits than `belady`, and none with a fixed placement more than `hindsight`. They count hits:
// where layers' records differ in size, others may read fewer bytes.
#ifndef TIDEPOOL_MOE_REPLAY_ORACLES_H_
#define TIDEPOOL_MOE_REPLAY_ORACLES_H_

#include <memory>

#include "moe/policy/placement_policy.h"
#include "moe/replay/trace.h"

namespace tidepool::moe {

// The offline optimum: slots start with the experts that are needed first; afterwards residents and
// misses compete, and those needed again last make way or pass through. (An expert between two
// uses that both find it resident occupies a slot; keeping the most of such intervals at most
// `slots` deep is greedy by the nearest end.) Requires that Decide is called for every entry of
// the trace, in its order.
std::unique_ptr<PlacementPolicy> MakeBelady(const Trace& trace);

// The best fixed placement: the most used experts of the whole trace.
std::unique_ptr<PlacementPolicy> MakeHindsight(const Trace& trace);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_REPLAY_ORACLES_H_
