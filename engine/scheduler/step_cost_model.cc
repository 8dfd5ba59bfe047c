#include "engine/scheduler/step_cost_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tidepool::engine {

void StepCostModel::AddStep(const Step& step) {
  const double seconds = absl::ToDoubleSeconds(step.time);
  const double prompt_rows = static_cast<double>(step.prompt_rows);
  if (step.read_bytes > 0) {
    reads_.Add(static_cast<double>(step.read_bytes), absl::ToDoubleSeconds(step.read_time));
  }
  if (step.prompt_rows == 0) return decode_step_.Add(seconds, 1);
  const double decodes = step.decode_rows > 0 ? decode_step_.value() : 0;
  prompt_row_.Add(std::max(seconds - decodes, 0.0), prompt_rows);
  // Steps of mostly decodes are not used to measure the prefill speed.
  if (step.prompt_rows <= step.decode_rows) return;
  const double rows = prompt_rows + static_cast<double>(step.decode_rows);
  prefill_.Add(rows, seconds);
  computed_row_.Add(std::max(seconds - absl::ToDoubleSeconds(step.stall_time), 0.0), rows);
  if (step.prompt_rows >= kManyRows) large_prefill_.Add(rows, seconds);
}

void StepCostModel::AddQueueLook(const QueueLook& look) {
  // Slots become free one by one, and some requests take long. So the rate is measured over a long
  // time.
  constexpr absl::Duration kWindow = absl::Seconds(30);
  const QueueLook last = std::exchange(last_look_, look);
  if (look.waiting == 0) {
    admissions_ = FadingRatio();
    admissions_seen_ = 0;
  } else if (last.waiting > 0) {
    const absl::Duration elapsed = look.at - last.at;
    const int64_t count = look.admissions - last.admissions;
    admissions_.Add(static_cast<double>(count), absl::ToDoubleSeconds(elapsed),
                    std::exp(-absl::FDivDuration(elapsed, kWindow)));
    admissions_seen_ += count;
  }
}

MeasuredRates StepCostModel::rates() const {
  return {.prompt_rows_per_second = large_prefill_.value(),
          .admissions_per_second = admissions_seen_ >= kEnoughAdmissions ? admissions_.value() : 0};
}

int64_t StepCostModel::MixedRows(int64_t most) const {
  const double row = prompt_row_.value();
  if (row <= 0) return most;
  const double extra = std::max(decode_step_.value(), absl::ToDoubleSeconds(kMinExtra));
  const double rows = std::min(extra / row, static_cast<double>(most));
  return std::min(most, std::max(static_cast<int64_t>(rows), kMinRows));
}

int64_t StepCostModel::MixedRowsOverReads(int64_t missing_bytes, int64_t most) const {
  if (computed_row_.value() <= 0 || reads_.value() <= 0) return most;
  const double read_seconds = static_cast<double>(missing_bytes) / reads_.value();
  const double rows = std::min(read_seconds / computed_row_.value(), static_cast<double>(most));
  return std::max(static_cast<int64_t>(rows), MixedRows(most));
}

}  // namespace tidepool::engine
