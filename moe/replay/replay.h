// Replay: runs a trace through a placement. It counts hits and misses as an engine would, and
// estimates the time of the steps.
//
// The cost model: a layer first runs its resident experts, one after the other. At the same time,
// its missing experts are read, one after the other. A missing expert runs when it has been read
// and the previous expert has run. A run takes expert_bytes / memory_bandwidth, whatever the number
// of tokens, and a read takes expert_bytes / read_bandwidth. The next layer begins when the last
// expert has run. Attention and all other work of a step are ignored.
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
#include "moe/trace/trace.h"

namespace tidepool::moe {

struct CostModel {
  double read_bytes_per_s = 1.5e9;   // bandwidth at which missing experts are read
  double memory_bytes_per_s = 10e9;  // memory bandwidth at which experts run
};

struct ReplayResult {
  std::string policy;
  int64_t slots = 0;
  PlacementCounters counters;
  int64_t bytes_moved = 0;  // bytes read for misses; the initial residents are not counted
  int64_t forwards = 0;
  double step_ms = 0;  // mean time of a forward pass according to the cost model
};

// A policy for `tidepool replay`. The name is one that ParsePolicyKind accepts, or "belady" or
// "hindsight".
struct ReplayPolicy {
  std::string name;
  PolicyOptions options;  // `kind` is ignored; the name determines it
};

// Returns INVALID_ARGUMENT for an unknown name, or if the slots or options do not fit the trace.
absl::StatusOr<std::unique_ptr<Placement>> MakePlacement(const Trace& trace, int64_t slots,
                                                         const ReplayPolicy& policy);

// Requires: the placement has the trace's shape and has not been used before.
ReplayResult Replay(const Trace& trace, const CostModel& cost, Placement* placement);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_REPLAY_REPLAY_H_
