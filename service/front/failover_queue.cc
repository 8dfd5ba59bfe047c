#include "service/front/failover_queue.h"

#include <algorithm>
#include <utility>

namespace tidepool::service {

FailoverQueue::Ticket& FailoverQueue::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  line_ = std::exchange(other.line_, nullptr);
  number_ = other.number_;
  worker_ = std::move(other.worker_);
  return *this;
}

void FailoverQueue::Ticket::Reset() {
  if (line_ != nullptr) std::exchange(line_, nullptr)->Leave(number_);
}

void FailoverQueue::Ticket::HoldFor(absl::Duration time) {
  if (line_ != nullptr) line_->HoldFor(number_, time);
}

void FailoverQueue::Ticket::GoTo(const std::string& worker) {
  if (line_ == nullptr) return;
  worker_ = worker;
  const auto found = line_->in_flight_.find(number_);
  if (found == line_->in_flight_.end()) return;
  const std::string left = std::exchange(found->second.worker, worker);
  const bool moved = !left.empty() && left != worker;
  if (moved && found->second.kind == Kind::kAlone) line_->EndTrial();
}

void FailoverQueue::EndTrial() {
  for (auto& task : std::exchange(after_trial_, {})) loop_->Post(std::move(task));
}

std::vector<std::string> FailoverQueue::WithSuspects() const {
  return WorkersOf({Kind::kSuspect, Kind::kAlone});
}

std::vector<std::string> FailoverQueue::WithTrials() const { return WorkersOf({Kind::kAlone}); }

std::vector<std::string> FailoverQueue::WorkersOf(const std::vector<Kind>& kinds) const {
  std::vector<std::string> workers;
  for (const auto& [number, one] : in_flight_) {
    const bool asked = std::find(kinds.begin(), kinds.end(), one.kind) != kinds.end();
    if (asked && !one.worker.empty()) workers.push_back(one.worker);
  }
  return workers;
}

int64_t FailoverQueue::waiting() const {
  size_t waiting = usual_.size();
  for (const Lines* lines : {&suspects_, &trials_}) {
    for (const auto& [model, line] : *lines) waiting += line.size();
  }
  return static_cast<int64_t>(waiting);
}

FailoverQueue::Ticket FailoverQueue::Enter(Kind kind, const std::string& model_digest,
                                           std::function<void()> go) {
  const uint64_t number = next_number_++;
  Line& line = kind == Kind::kUsual     ? usual_
               : kind == Kind::kSuspect ? suspects_[model_digest]
                                        : trials_[model_digest];
  line.push_back({.number = number, .go = std::move(go)});
  Advance();
  return Ticket(this, number);
}

void FailoverQueue::HoldFor(uint64_t number, absl::Duration time) {
  const auto held = in_flight_.find(number);
  if (held == in_flight_.end()) return;
  held->second.stays = true;
  loop_->PostAfter(time, [this, weak = std::weak_ptr<int>(alive_), number] {
    if (weak.expired()) return;
    const auto found = in_flight_.find(number);
    if (found == in_flight_.end()) return;
    found->second.stays = false;
    if (found->second.left) Leave(number);
  });
}

void FailoverQueue::Leave(uint64_t number) {
  const auto found = in_flight_.find(number);
  if (found != in_flight_.end() && found->second.stays) {
    found->second.left = true;
    return;
  }
  if (found != in_flight_.end()) {
    if (found->second.kind == Kind::kAlone) EndTrial();
    in_flight_.erase(found);
  }
  const auto is_it = [number](const Waiting& one) { return one.number == number; };
  std::erase_if(usual_, is_it);
  for (Lines* lines : {&suspects_, &trials_}) {
    for (auto& [model, line] : *lines) std::erase_if(line, is_it);
    std::erase_if(*lines, [](const auto& entry) { return entry.second.empty(); });
  }
  Advance();
}

void FailoverQueue::Advance() {
  const int64_t limit =
      std::max(kAlways, static_cast<int64_t>(kShare * static_cast<double>(running_())));
  while (in_flight() < limit && !usual_.empty()) Send({.kind = Kind::kUsual}, &usual_);
  SendSuspects(Kind::kSuspect, &suspects_, limit);
  SendSuspects(Kind::kAlone, &trials_, limit);
}

void FailoverQueue::SendSuspects(Kind kind, Lines* lines, int64_t limit) {
  while (in_flight() < limit) {
    const auto next = NextSuspects(kind, lines);
    if (next == lines->end()) return;
    Send({.kind = kind, .model_digest = next->first}, &next->second);
    if (next->second.empty()) lines->erase(next);
  }
}

FailoverQueue::Lines::iterator FailoverQueue::NextSuspects(Kind kind, Lines* lines) const {
  auto next = lines->end();
  for (auto line = lines->begin(); line != lines->end(); ++line) {
    const bool sooner =
        next == lines->end() || line->second.front().number < next->second.front().number;
    if (sooner && HasWorker(kind, line->first)) next = line;
  }
  return next;
}

bool FailoverQueue::HasWorker(Kind kind, const std::string& model_digest) const {
  int64_t taken = 0;
  for (const auto& [number, one] : in_flight_) {
    if (one.kind == Kind::kUsual || one.model_digest != model_digest) continue;
    if (kind == Kind::kAlone && one.kind == Kind::kAlone) return false;
    ++taken;
  }
  return taken < std::max<int64_t>(1, serving_(model_digest));
}

void FailoverQueue::Send(OnItsWay way, Line* line) {
  Waiting next = std::move(line->front());
  line->pop_front();
  in_flight_[next.number] = std::move(way);
  loop_->Post(
      [this, weak = std::weak_ptr<int>(alive_), number = next.number, go = std::move(next.go)] {
        if (!weak.expired() && in_flight_.contains(number)) go();
      });
}

}  // namespace tidepool::service
