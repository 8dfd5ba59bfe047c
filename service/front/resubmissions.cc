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

int64_t Resubmissions::waiting() const {
  size_t waiting = usual_.size();
  for (const auto& [model, line] : suspects_) waiting += line.size();
  return static_cast<int64_t>(waiting);
}

Resubmissions::Ticket Resubmissions::Enter(Kind kind, const std::string& model_digest,
                                           std::function<void()> go) {
  const uint64_t number = next_number_++;
  Line& line = kind == Kind::kUsual ? usual_ : suspects_[model_digest];
  line.push_back({.number = number, .go = std::move(go)});
  Advance();
  return Ticket(this, number);
}

void Resubmissions::Leave(uint64_t number) {
  under_way_.erase(number);
  const auto is_it = [number](const Waiting& one) { return one.number == number; };
  std::erase_if(usual_, is_it);
  for (auto& [model, line] : suspects_) std::erase_if(line, is_it);
  std::erase_if(suspects_, [](const auto& entry) { return entry.second.empty(); });
  Advance();
}

void Resubmissions::Advance() {
  const int64_t limit =
      std::max(kAlways, static_cast<int64_t>(kShare * static_cast<double>(running_())));
  while (under_way() < limit && !usual_.empty()) Send({.kind = Kind::kUsual}, &usual_);
  while (under_way() < limit) {
    const auto next = NextSuspects();
    if (next == suspects_.end()) return;
    Send({.kind = Kind::kSuspect, .model_digest = next->first}, &next->second);
    if (next->second.empty()) suspects_.erase(next);
  }
}

std::map<std::string, Resubmissions::Line>::iterator Resubmissions::NextSuspects() {
  auto next = suspects_.end();
  for (auto line = suspects_.begin(); line != suspects_.end(); ++line) {
    const bool sooner =
        next == suspects_.end() || line->second.front().number < next->second.front().number;
    if (sooner && HasWorkerForSuspect(line->first)) next = line;
  }
  return next;
}

bool Resubmissions::HasWorkerForSuspect(const std::string& model_digest) const {
  const int64_t taken =
      std::count_if(under_way_.begin(), under_way_.end(), [&](const auto& entry) {
        return entry.second.kind == Kind::kSuspect && entry.second.model_digest == model_digest;
      });
  return taken < std::max<int64_t>(1, serving_(model_digest));
}

void Resubmissions::Send(OnItsWay way, Line* line) {
  Waiting next = std::move(line->front());
  line->pop_front();
  under_way_[next.number] = std::move(way);
  loop_->Post(
      [this, weak = std::weak_ptr<int>(alive_), number = next.number, go = std::move(next.go)] {
        if (!weak.expired() && under_way_.contains(number)) go();
      });
}

}  // namespace tidepool::service
