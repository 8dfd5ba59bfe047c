// Replay: a trace through a placement, counting what an engine would count and estimating what its
// steps would cost.
//
// The cost model: a layer's resident experts run first, one after the other; the missing ones are
// read one after the other meanwhile, and each runs as soon as it is there and its predecessor is
// done. An expert runs in expert_bytes / memory_bandwidth, whatever the number of its tokens, and
// is read in expert_bytes / read_bandwidth. The next layer begins when the last has run. Attention
// and whatever else a step does is left out.
#ifndef TIDEPOOL_MOE_REPLAY_REPLAY_H_
#define TIDEPOOL_MOE_REPLAY_REPLAY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "moe/policy/placement.h"
#include "moe/replay/trace.h"

namespace tidepool::moe {

struct CostModel {
  double read_bytes_per_s = 1.5e9;   // of the tier that experts are brought from
  double memory_bytes_per_s = 10e9;  // of the memory that they run from
};

struct ReplayResult {
  std::string policy;
  int64_t slots = 0;
  PlacementCounters counters;
  int64_t bytes_moved = 0;  // read for misses; the first fill is not counted
  int64_t forwards = 0;
  double step_ms = 0;  // mean over forwards, under the cost model
};

// What a policy of `replay` is called: the names of ParsePolicyKind, "belady" and "hindsight".
struct ReplayPolicy {
  std::string name;
  PolicyOptions options;  // kind is taken from the name
};

// INVALID_ARGUMENT for a name that is none, or slots or options that do not fit the trace.
absl::StatusOr<std::unique_ptr<Placement>> MakePlacement(const Trace& trace, int64_t slots,
                                                         const ReplayPolicy& policy);

// Requires: the placement has the trace's shape and is fresh.
ReplayResult Replay(const Trace& trace, const CostModel& cost, Placement* placement);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_REPLAY_REPLAY_H_
