#include "engine/engine_offload.h"

#include <utility>

#include "absl/status/status.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

void EngineOffload::Read(EngineStats* stats) {
  stats->offload = model_->offload_stats();
  if (!stats->offload.has_value()) return;
  const absl::Duration now = clock_->Monotonic();
  window_.Add(now, *stats->offload);
  stats->offload_recent = window_.recent();
  stats->offload_window = window_.length();
  stats->offload_read_at = now;
  if (!uses_.Due(now)) return;
  if (moe::OffloadControl* control = model_->offload_control(); control != nullptr) {
    uses_.Add(now, control->Map().uses);
  }
}

absl::StatusOr<moe::OffloadControl*> EngineOffload::Control() {
  moe::OffloadControl* control = model_->offload_control();
  if (control != nullptr) return control;
  return absl::FailedPreconditionError(
      "this model's experts are not offloaded: it has none, or all were loaded into memory at the "
      "start. To offload a model with experts, start it with --expert-memory SIZE");
}

absl::StatusOr<moe::OffloadSettings> EngineOffload::Change(const moe::OffloadChange& change) {
  ASSIGN_OR_RETURN(moe::OffloadControl* const control, Control());
  RETURN_IF_ERROR(control->Change(change));
  return control->Settings();
}

absl::StatusOr<moe::OffloadSettings> EngineOffload::RefreshSoon() {
  ASSIGN_OR_RETURN(moe::OffloadControl* const control, Control());
  control->RefreshSoon();
  return control->Settings();
}

absl::StatusOr<ExpertPlacement> EngineOffload::Placement() {
  ASSIGN_OR_RETURN(moe::OffloadControl* const control, Control());
  ExpertPlacement placement;
  placement.map = control->Map();
  const absl::Duration now = clock_->Monotonic();
  if (uses_.Due(now)) uses_.Add(now, placement.map.uses);
  placement.recent_uses = uses_.Recent(placement.map.uses);
  placement.window = uses_.Length(now);
  return placement;
}

void AgeWindow(absl::Duration idle, EngineStats* stats) {
  if (!stats->offload.has_value() || idle <= absl::ZeroDuration()) return;
  if (idle < moe::OffloadWindow::kLength) {
    stats->offload_window += idle;
    return;
  }
  stats->offload_recent = moe::Difference(*stats->offload, *stats->offload);
  stats->offload_window = moe::OffloadWindow::kLength;
}

namespace {

// Returns the share of `total` for the rows in `range`, out of `rows` rows.
int64_t Part(int64_t total, const RowRange& range, int64_t rows) {
  const auto up_to = [&](int64_t row) {
    return static_cast<int64_t>(static_cast<__int128>(total) * row / rows);
  };
  return up_to(range.end) - up_to(range.begin);
}

}  // namespace

void AddShare(const PassCosts& costs, const RowRange& range, int64_t rows, Usage* usage) {
  CHECK(0 <= range.begin && range.begin <= range.end && range.end <= rows && rows > 0);
  usage->expert_hits += Part(costs.hits, range, rows);
  usage->expert_misses += Part(costs.misses, range, rows);
  usage->expert_demand_bytes += Part(costs.demand_bytes, range, rows);
  usage->expert_stall_time +=
      absl::Nanoseconds(Part(absl::ToInt64Nanoseconds(costs.stall_time), range, rows));
}

}  // namespace tidepool::engine
