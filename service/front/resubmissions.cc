#include "service/front/resubmissions.h"

#include <algorithm>

namespace tidepool::service {

Resubmissions::Ticket& Resubmissions::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  line_ = std::exchange(other.line_, nullptr);
  number_ = other.number_;
  return *this;
}

void Resubmissions::Ticket::Reset() {
  if (line_ != nullptr) std::exchange(line_, nullptr)->Leave(number_);
}

void Resubmissions::Ticket::GoTo(const std::string& worker) {
  if (line_ == nullptr) return;
  const auto found = line_->under_way_.find(number_);
  if (found != line_->under_way_.end()) found->second.worker = worker;
}

std::vector<std::string> Resubmissions::WithSuspects() const {
  std::vector<std::string> workers;
  for (const auto& [number, one] : under_way_) {
    if (one.kind == Kind::kSuspect && !one.worker.empty()) workers.push_back(one.worker);
  }
  return workers;
}

Resubmissions::Ticket Resubmissions::Enter(Kind kind, std::function<void()> go) {
  const uint64_t number = next_number_++;
  auto& line = kind == Kind::kUsual ? usual_ : suspects_;
  line.push_back({.number = number, .go = std::move(go)});
  Advance();
  return Ticket(this, number);
}

void Resubmissions::Leave(uint64_t number) {
  under_way_.erase(number);
  for (auto* line : {&usual_, &suspects_}) {
    line->erase(std::remove_if(line->begin(), line->end(),
                               [number](const Waiting& one) { return one.number == number; }),
                line->end());
  }
  Advance();
}

void Resubmissions::Advance() {
  const int64_t limit =
      std::max(kAlways, static_cast<int64_t>(kShare * static_cast<double>(running_())));
  while (under_way() < limit && !usual_.empty()) Send(Kind::kUsual, &usual_);
  if (suspects_.empty()) return;
  int64_t free = std::max<int64_t>(1, serving_()) -
                 std::count_if(under_way_.begin(), under_way_.end(), [](const auto& entry) {
                   return entry.second.kind == Kind::kSuspect;
                 });
  for (; under_way() < limit && free > 0 && !suspects_.empty(); --free) {
    Send(Kind::kSuspect, &suspects_);
  }
}

void Resubmissions::Send(Kind kind, std::deque<Waiting>* line) {
  Waiting next = std::move(line->front());
  line->pop_front();
  under_way_[next.number] = {.kind = kind};
  loop_->Post(
      [this, weak = std::weak_ptr<int>(alive_), number = next.number, go = std::move(next.go)] {
        if (!weak.expired() && under_way_.contains(number)) go();
      });
}

}  // namespace tidepool::service
