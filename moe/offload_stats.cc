#include "moe/offload_stats.h"

namespace tidepool::moe {

OffloadStats Difference(const OffloadStats& now, const OffloadStats& before) {
  OffloadStats recent = now;
  recent.placement.hits -= before.placement.hits;
  recent.placement.promotions -= before.placement.promotions;
  recent.placement.pass_throughs -= before.placement.pass_throughs;
  recent.placement.evictions -= before.placement.evictions;
  recent.demand_reads -= before.demand_reads;
  recent.demand_bytes -= before.demand_bytes;
  recent.prefetch_bytes -= before.prefetch_bytes;
  recent.prefetch_used_bytes -= before.prefetch_used_bytes;
  recent.prefetch_wasted_bytes -= before.prefetch_wasted_bytes;
  recent.failed_reads -= before.failed_reads;
  recent.stall_time -= before.stall_time;
  recent.hidden_time -= before.hidden_time;
  return recent;
}

void OffloadWindow::Add(absl::Duration time, const OffloadStats& stats) {
  // Steps can be fast: what lies between two readings a second apart is not kept.
  constexpr absl::Duration kApart = absl::Seconds(1);
  if (readings_.size() >= 2 && time - readings_[readings_.size() - 2].time < kApart) {
    readings_.back() = {time, stats};
  } else {
    readings_.push_back({time, stats});
  }
  while (readings_.size() > 2 && time - readings_[1].time >= kLength) readings_.pop_front();
}

OffloadStats OffloadWindow::recent() const {
  if (readings_.empty()) return {};
  return Difference(readings_.back().stats, readings_.front().stats);
}

absl::Duration OffloadWindow::length() const {
  if (readings_.empty()) return absl::ZeroDuration();
  return readings_.back().time - readings_.front().time;
}

}  // namespace tidepool::moe
