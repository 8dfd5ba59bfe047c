#include "kernels/cuda/copy_lane.h"

#include <iterator>

#include "absl/memory/memory.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::kernels::cuda {

absl::StatusOr<std::unique_ptr<CopyLane>> CopyLane::Create(int device, Stream* ops) {
  ASSIGN_OR_RETURN(Stream* const stream, MakeStream(device));
  auto lane = absl::WrapUnique(new CopyLane(device, ops, stream));
  for (Event*& mark : lane->marks_) {
    mark = MakeEvent(device, EventKind::kUntimed);
    if (mark == nullptr) return absl::InternalError("the device cannot make an event for copies");
  }
  return lane;
}

CopyLane::~CopyLane() {
  DeleteStream(stream_);
  for (const auto& [ticket, copy] : copies_) {
    free_events_.push_back(copy.begin);
    free_events_.push_back(copy.end);
  }
  free_events_.insert(free_events_.end(), std::begin(marks_), std::end(marks_));
  for (Event* event : free_events_) {
    if (event != nullptr) DeleteEvent(event);
  }
}

Event* CopyLane::TakeEvent() {
  if (!free_events_.empty()) {
    Event* const event = free_events_.back();
    free_events_.pop_back();
    return event;
  }
  Event* const event = MakeEvent(device_, EventKind::kTimed);
  if (event == nullptr) {
    event_error_.Update(absl::InternalError("the device cannot make an event for a copy"));
  }
  return event;
}

OpMark CopyLane::MarkOps() {
  Record(ops_, marks_[++last_mark_ % kMarks]);
  return last_mark_;
}

CopyTicket CopyLane::Begin(absl::Span<const std::byte> from, std::byte* to, OpMark after) {
  CHECK(after >= 0 && after <= last_mark_) << "mark " << after << " was not made";
  const Copy copy = {TakeEvent(), TakeEvent()};
  copies_.emplace(++begun_, copy);
  if (!event_error_.ok()) return begun_;
  if (after > awaited_mark_) {
    WaitOnDevice(stream_, marks_[after % kMarks]);
    awaited_mark_ = after;
  }
  Record(stream_, copy.begin);
  if (!from.empty()) CopyPinnedIn(stream_, from.data(), to, from.size());
  Record(stream_, copy.end);
  return begun_;
}

void CopyLane::Await(CopyTicket copy) {
  CHECK(copy > 0 && copy <= begun_) << "copy " << copy << " was not begun";
  const auto found = copies_.find(copy);
  if (found != copies_.end() && event_error_.ok()) WaitOnDevice(ops_, found->second.end);
}

absl::StatusOr<std::optional<absl::Duration>> CopyLane::Time(CopyTicket copy) {
  const auto found = copies_.find(copy);
  CHECK(found != copies_.end()) << "copy " << copy << " was not begun, or its time was read";
  RETURN_IF_ERROR(status());
  const auto [begin, end] = found->second;
  const bool has_ended = HasHappened(stream_, end);
  const absl::Duration time = has_ended ? TimeBetween(stream_, begin, end) : absl::ZeroDuration();
  RETURN_IF_ERROR(status());
  if (!has_ended) return std::nullopt;
  copies_.erase(found);
  free_events_.insert(free_events_.end(), {begin, end});
  return time;
}

absl::Status CopyLane::status() const {
  RETURN_IF_ERROR(event_error_);
  return ErrorOf(stream_);
}

}  // namespace tidepool::kernels::cuda
