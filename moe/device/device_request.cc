#include "moe/device/device_request.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::moe {

void DeviceRequest::Begin(const LayerRouting& routing, absl::Span<const int32_t> experts) {
  CHECK(done()) << "layer " << routing.layer << " was requested before the last one was drained";
  routing_ = routing;
  experts_ = experts;
  first_ = routing.layer * static_cast<int64_t>(entries_.size());
  left_ = static_cast<int64_t>(experts.size());
  has_lookups_ = false;
  for (const int32_t expert : experts) entries_[expert] = Entry();
}

void DeviceRequest::SetLookups(absl::Span<const Lookup> lookups) {
  CHECK_EQ(lookups.size(), experts_.size());
  has_lookups_ = true;
  for (const Lookup& lookup : lookups) {
    Entry& entry = entries_[lookup.expert];
    entry.rows = lookup.tokens;
    entry.found = lookup.action == LookupAction::kHit ? Found::kResident : Found::kFetched;
  }
}

LayerRouting DeviceRequest::Reduced(absl::Span<const int32_t> experts) {
  LayerRouting reduced = routing_;
  reduced.host_lane = HostLane::kOff;
  if (experts.size() == experts_.size()) return reduced;
  reduced_ids_.assign(routing_.ids.begin(), routing_.ids.end());
  for (int32_t& id : reduced_ids_) {
    if (!std::binary_search(experts.begin(), experts.end(), id)) id = LayerRouting::kNoExpert;
  }
  reduced.ids = reduced_ids_;
  return reduced;
}

void DeviceRequest::AddWaiting(const WaitingCopy& copy) {
  const auto at = std::lower_bound(
      lists_.waiting.begin(), lists_.waiting.end(), copy,
      [](const WaitingCopy& a, const WaitingCopy& b) { return a.expert < b.expert; });
  lists_.waiting.insert(at, copy);
}

void DeviceRequest::AddForCpu(int64_t expert, const kernels::FfnWeights* weights) {
  entries_[expert - first_].host_weights = weights;
  lists_.for_cpu.push_back(expert);
}

void DeviceRequest::GiveOut(int64_t expert, Place place) {
  Entry& entry = entries_[expert - first_];
  CHECK(!std::exchange(entry.is_given_out, true)) << "expert " << expert << " was given out before";
  entry.place = place;
  --left_;
  ++given_out_;
}

void DeviceRequest::Release(int64_t expert) {
  CHECK(std::exchange(entries_[expert - first_].is_given_out, false))
      << "expert " << expert << " is not in use";
  --given_out_;
}

void DeviceRequest::Postpone(int64_t expert) {
  Release(expert);
  entries_[expert - first_].was_postponed = true;
  ++left_;
}

void DeviceRequest::Abandon() {
  for (const int32_t expert : experts_) entries_[expert].is_given_out = false;
  lists_ = Lists();
  left_ = 0;
  given_out_ = 0;
  has_lookups_ = true;
}

}  // namespace tidepool::moe
