#include "service/base/write_timeouts.h"

namespace tidepool::service {

WriteTimeouts::Write& WriteTimeouts::Write::operator=(Write&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  writes_ = std::exchange(other.writes_, {});
  number_ = other.number_;
  return *this;
}

void WriteTimeouts::Write::Reset() {
  if (const auto writes = writes_.lock()) writes->erase(number_);
  writes_.reset();
}

WriteTimeouts::Write WriteTimeouts::Begin(std::function<void()> on_late) {
  Write write;
  write.writes_ = writes_;
  write.number_ = next_number_++;
  (*writes_)[write.number_] = {.since = clock_->Monotonic(), .tell = std::move(on_late)};
  if (!looks_later_) LookAfter(limit_);
  return write;
}

void WriteTimeouts::LookAfter(absl::Duration wait) {
  looks_later_ = true;
  loop_->PostAfter(wait, [this, weak = std::weak_ptr<Write::Writes>(writes_)] {
    if (!weak.expired()) Look();
  });
}

void WriteTimeouts::Look() {
  const absl::Duration now = clock_->Monotonic();
  while (!writes_->empty() && now - writes_->begin()->second.since >= limit_) {
    const std::function<void()> tell = std::move(writes_->begin()->second.tell);
    writes_->erase(writes_->begin());
    tell();
  }
  // Reset this only after the loop above. A write that began during the loop is later than all
  // writes that remain, so it needs no timer of its own.
  looks_later_ = false;
  if (!writes_->empty()) LookAfter(writes_->begin()->second.since + limit_ - now);
}

}  // namespace tidepool::service
