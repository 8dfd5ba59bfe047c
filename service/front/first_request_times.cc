#include "service/front/first_request_times.h"

namespace tidepool::service {

std::optional<absl::Time> FirstRequestTimes::Find(const IdempotencyCache::Name& name,
                                                  const std::string& body) {
  DropOld();
  const auto found = entries_.find(name);
  if (found == entries_.end() || found->second.body != body) return std::nullopt;
  if (found->second.until <= clock_->Monotonic()) return std::nullopt;
  return found->second.asked;
}

void FirstRequestTimes::Keep(const IdempotencyCache::Name& name, const std::string& body,
                             absl::Time asked, absl::Duration ttl) {
  const int64_t number = next_number_++;
  entries_[name] = {
      .body = body, .asked = asked, .until = clock_->Monotonic() + ttl, .number = number};
  order_.emplace_back(name, number);
  DropOld();
}

void FirstRequestTimes::DropOld() {
  while (!order_.empty()) {
    const auto& [name, number] = order_.front();
    const auto found = entries_.find(name);
    const bool current = found != entries_.end() && found->second.number == number;
    if (current && found->second.until > clock_->Monotonic() && order_.size() <= kMax) return;
    if (current) entries_.erase(found);
    order_.pop_front();
  }
}

}  // namespace tidepool::service
