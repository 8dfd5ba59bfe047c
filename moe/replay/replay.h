// Replay: runs a trace through a placement. It counts what an engine would count, and estimates the
// time of its steps.
//
// The cost model: a layer's resident experts run first, one after the other. Meanwhile the missing
// experts are read one after the other, and each runs once it has arrived and the previous one is
// done. An expert runs in expert_bytes / memory_bandwidth, whatever the number of its tokens, and
// is read in expert_bytes / read_bandwidth. The next layer begins when the last expert has run.
// Attention and all other work of a step are ignored.
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
  double read_bytes_per_s = 1.5e9;   // bandwidth of the tier that experts are read from
  double memory_bytes_per_s = 10e9;  // bandwidth of the memory that they run from
};

struct ReplayResult {
  std::string policy;
  int64_t slots = 0;
  PlacementCounters counters;
  int64_t bytes_moved = 0;  // read for misses, without the first fill
  int64_t forwards = 0;
  double step_ms = 0;  // mean over forwards, by the cost model
};

// A policy of `replay`. Its name is accepted by ParsePolicyKind, or is "belady" or "hindsight".
struct ReplayPolicy {
  std::string name;
  PolicyOptions options;  // `kind` follows from the name
};

// INVALID_ARGUMENT for an unknown name, or for slots or options that do not fit the trace.
absl::StatusOr<std::unique_ptr<Placement>> MakePlacement(const Trace& trace, int64_t slots,
                                                         const ReplayPolicy& policy);

// Requires: the placement has the trace's shape and has not been used.
ReplayResult Replay(const Trace& trace, const CostModel& cost, Placement* placement);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_REPLAY_REPLAY_H_
