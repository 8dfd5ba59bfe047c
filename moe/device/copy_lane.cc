#include "moe/device/copy_lane.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"

namespace tidepool::moe {

kernels::CopyTicket CopyLane::Begin(const ExpertCopy& copy) {
  const kernels::CopyTicket ticket = backend_->BeginCopyIn(copy.from, copy.to, copy.after);
  in_flight_.push_back({ticket, copy});
  const auto bytes = static_cast<int64_t>(copy.from.size());
  free_at_ = std::max(free_at_, clock_->Monotonic()) + absl::Seconds(costs_->CopySeconds(bytes));
  return ticket;
}

// If earlier copies into the same memory were not awaited, awaits these copies too. This takes no
// more time, because the device runs them first.
void CopyLane::Await(kernels::CopyTicket copy) {
  const auto found = std::find_if(in_flight_.begin(), in_flight_.end(),
                                  [copy](const Copy& other) { return other.ticket == copy; });
  if (found == in_flight_.end()) return;
  for (auto other = in_flight_.begin(); other != found; ++other) {
    if (other->copy.to == found->copy.to) backend_->AwaitCopy(other->ticket);
  }
  backend_->AwaitCopy(copy);
}

std::vector<CopyLane::Ended> CopyLane::Poll() {
  std::vector<Ended> ended;
  while (!in_flight_.empty()) {
    const Copy& first = in_flight_.front();
    const absl::StatusOr<std::optional<absl::Duration>> time = backend_->CopyTime(first.ticket);
    if (time.ok() && !time->has_value()) break;
    if (time.ok()) {
      const auto bytes = static_cast<int64_t>(first.copy.from.size());
      counters_.bytes += bytes;
      counters_.time += **time;
      costs_->NoteCopy(bytes, absl::ToDoubleSeconds(**time));
    }
    ended.push_back({first.copy.expert, first.ticket, time.status()});
    in_flight_.pop_front();
  }
  if (in_flight_.empty()) free_at_ = absl::ZeroDuration();
  return ended;
}

// On a device, Sync usually also waits for the copies that the device waits for. The loop waits for
// the other copies.
std::vector<CopyLane::Ended> CopyLane::AwaitAll() {
  if (in_flight_.empty()) return {};
  const absl::Duration start = clock_->Monotonic();
  for (const Copy& copy : in_flight_) backend_->AwaitCopy(copy.ticket);
  backend_->Sync().IgnoreError();  // Poll returns the error for each copy
  std::vector<Ended> ended = Poll();
  while (!in_flight_.empty()) {
    std::this_thread::yield();
    for (Ended& other : Poll()) ended.push_back(std::move(other));
  }
  counters_.wait_time += clock_->Monotonic() - start;
  return ended;
}

double CopyLane::SecondsAhead() const {
  if (in_flight_.empty()) return 0;
  return std::max(0.0, absl::ToDoubleSeconds(free_at_ - clock_->Monotonic()));
}

}  // namespace tidepool::moe
