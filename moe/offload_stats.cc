#include "moe/offload_stats.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::moe {
namespace {

// Minimum time between two stored readings. Without it, there would be a reading for every step.
constexpr absl::Duration kApart = absl::Seconds(1);

void Subtract(const PlacementCounters& before, PlacementCounters* recent) {
  recent->hits -= before.hits;
  recent->promotions -= before.promotions;
  recent->pass_throughs -= before.pass_throughs;
  recent->evictions -= before.evictions;
}

void Subtract(const HostTierStats& before, HostTierStats* recent) {
  Subtract(before.placement, &recent->placement);
  recent->copied -= before.copied;
  recent->computed_on_cpu -= before.computed_on_cpu;
  recent->copied_for_later -= before.copied_for_later;
  recent->copied_ahead -= before.copied_ahead;
  recent->copied_bytes -= before.copied_bytes;
  recent->copy_time -= before.copy_time;
  recent->copy_wait_time -= before.copy_wait_time;
  recent->cpu_time -= before.cpu_time;
}

// Returns whether nothing was requested between two readings.
bool Idle(const OffloadStats& before, const OffloadStats& after) {
  return before.placement.lookups() == after.placement.lookups() &&
         before.placement.evictions == after.placement.evictions &&
         before.demand_bytes == after.demand_bytes && before.prefetch_bytes == after.prefetch_bytes;
}

// Requires: the stats did not change between `from` and `to`. Returns the latest time in this
// interval at which the window that ends at `now` can begin.
absl::Duration StartOfIdle(absl::Duration from, absl::Duration to, absl::Duration now) {
  return std::max(from, std::min(to, now - OffloadWindow::kLength));
}

}  // namespace

OffloadStats Difference(const OffloadStats& now, const OffloadStats& before) {
  OffloadStats recent = now;
  Subtract(before.placement, &recent.placement);
  for (size_t i = 0; i < before.layers.size() && i < recent.layers.size(); ++i) {
    Subtract(before.layers[i].counters, &recent.layers[i].counters);
  }
  recent.demand_reads -= before.demand_reads;
  recent.demand_bytes -= before.demand_bytes;
  recent.prefetch_bytes -= before.prefetch_bytes;
  recent.prefetch_used_bytes -= before.prefetch_used_bytes;
  recent.prefetch_wasted_bytes -= before.prefetch_wasted_bytes;
  recent.failed_reads -= before.failed_reads;
  recent.rebuilt_records -= before.rebuilt_records;
  recent.failed_record_writes -= before.failed_record_writes;
  recent.stall_time -= before.stall_time;
  recent.hidden_time -= before.hidden_time;
  if (before.host.has_value() && recent.host.has_value()) Subtract(*before.host, &*recent.host);
  return recent;
}

void OffloadWindow::Add(absl::Duration time, const OffloadStats& stats) {
  if (readings_.size() >= 2 && time - readings_[readings_.size() - 2].time < kApart) {
    readings_.back() = {time, stats};
  } else {
    readings_.push_back({time, stats});
  }
  while (readings_.size() > 2 && time - readings_[1].time >= kLength) readings_.pop_front();
  if (readings_.size() >= 2 && Idle(readings_[0].stats, readings_[1].stats)) {
    readings_[0].time = StartOfIdle(readings_[0].time, readings_[1].time, time);
  }
}

OffloadStats OffloadWindow::recent() const {
  if (readings_.empty()) return {};
  return Difference(readings_.back().stats, readings_.front().stats);
}

absl::Duration OffloadWindow::length() const {
  if (readings_.empty()) return absl::ZeroDuration();
  return readings_.back().time - readings_.front().time;
}

bool UseWindow::Due(absl::Duration time) const {
  return readings_.empty() || time - readings_.back().time >= kApart;
}

void UseWindow::Add(absl::Duration time, std::vector<int64_t> uses) {
  readings_.push_back({time, std::move(uses)});
  while (readings_.size() > 1 && time - readings_[1].time >= OffloadWindow::kLength) {
    readings_.pop_front();
  }
  if (readings_.size() >= 2 && readings_[0].uses == readings_[1].uses) {
    readings_[0].time = StartOfIdle(readings_[0].time, readings_[1].time, time);
  }
}

std::vector<int64_t> UseWindow::Recent(const std::vector<int64_t>& uses) const {
  std::vector<int64_t> recent = uses;
  if (readings_.empty()) return recent;
  const std::vector<int64_t>& before = readings_.front().uses;
  CHECK_EQ(before.size(), uses.size());
  for (size_t i = 0; i < recent.size(); ++i) recent[i] -= before[i];
  return recent;
}

absl::Duration UseWindow::Length(absl::Duration time) const {
  return readings_.empty() ? absl::ZeroDuration() : time - readings_.front().time;
}

}  // namespace tidepool::moe
