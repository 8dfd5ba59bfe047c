// EngineOffload: the engine's part of expert offloading. It reads the stats, and applies the
// changes that operators request.
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
  // `model` and `clock` must outlive this object.
  EngineOffload(Model* model, const base::Clock* clock) : model_(model), clock_(clock) {}

  // Sets those fields of `stats` that describe offloading.
  void Read(EngineStats* stats);

  // Implementations of Engine's SetOffload, RefreshExperts and GetPlacement. They return
  // FAILED_PRECONDITION if no experts are offloaded.
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

// Adjusts stats that were read `idle` ago. If nothing was computed since then, moves their window
// to the present.
void AgeWindow(absl::Duration idle, EngineStats* stats);

// The cost of a forward pass. Each request of the pass gets a share in proportion to its rows. The
// shares sum exactly to the cost, because rounding remainders go to later shares.
struct PassCosts {
  int64_t hits = 0;
  int64_t misses = 0;
  int64_t demand_bytes = 0;
  absl::Duration stall_time;
};
struct RowRange {
  int64_t begin = 0;  // the rows [begin, end) of the batch
  int64_t end = 0;
};
// Adds to `usage` the share of the rows in `range`. `rows` is the number of rows of the pass.
// Requires: 0 <= begin <= end <= rows, rows > 0.
void AddShare(const PassCosts& costs, const RowRange& range, int64_t rows, Usage* usage);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_ENGINE_OFFLOAD_H_
