// EngineOffload: the engine's end of a model whose experts do not all lie in memory: its readings,
// and what operators change of it.
#ifndef TIDEPOOL_ENGINE_ENGINE_OFFLOAD_H_
#define TIDEPOOL_ENGINE_ENGINE_OFFLOAD_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "engine/engine_stats.h"
#include "engine/model/model.h"
#include "engine/sampling/request.h"
#include "kernels/base/clock.h"
#include "moe/offload_control.h"
#include "moe/offload_stats.h"

namespace tidepool::engine {

// Engine thread only.
class EngineOffload {
 public:
  // Both outlive it.
  EngineOffload(Model* model, const base::Clock* clock) : model_(model), clock_(clock) {}

  // Writes `stats`' fields about offloading.
  void Read(EngineStats* stats);

  // As Engine's functions of these names. FAILED_PRECONDITION: nothing is offloaded.
  absl::StatusOr<moe::OffloadSettings> Change(const moe::OffloadChange& change);
  absl::StatusOr<moe::OffloadSettings> RefreshSoon();
  absl::StatusOr<ExpertPlacement> Placement();

 private:
  absl::StatusOr<moe::OffloadControl*> Control();

  Model* const model_;
  const base::Clock* const clock_;
  moe::OffloadWindow window_;
  moe::UseWindow uses_;
};

// Of stats that were read at a time after which nothing was computed: their window as it looks
// `idle` later.
void AgeWindow(absl::Duration idle, EngineStats* stats);

// What a forward pass cost, and the part of it that falls to one of its requests: costs are shared
// by rows. Each sum over the parts is exact: what rounding leaves over goes to later parts.
struct PassCosts {
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t demand_bytes = 0;
  absl::Duration stall_time;
};
struct RowRange {
  int64_t begin = 0;  // rows of the batch, [begin, end)
  int64_t end = 0;
};
// Adds the part of `range` to `usage`. Requires: 0 <= begin <= end <= rows, rows > 0.
void AddShare(const PassCosts& costs, const RowRange& range, int64_t rows, Usage* usage);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_OFFLOAD_H_
