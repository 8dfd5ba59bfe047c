#include "engine/fair_share.h"

#include <algorithm>
#include <optional>

#include "kernels/base/check.h"

namespace tidepool::engine {

void FairShare::BeginWaiting(const std::string& principal) {
  const auto [found, added] = accounts_.try_emplace(principal);
  Account& account = found->second;
  if (account.waiting > 0) {
    ++account.waiting;
    return;
  }
  // Who comes back counts as served as much as the one who was served least of those that wait:
  // time spent away is no credit.
  std::optional<int64_t> least;
  for (const auto& [name, other] : accounts_) {
    if (other.waiting > 0) least = std::min(least.value_or(other.served), other.served);
  }
  account.served = std::max(account.served, least.value_or(last_left_served_));
  account.waiting = 1;
  if (!added) --idle_;
}

void FairShare::EndWaiting(const std::string& principal) {
  Account& account = accounts_.at(principal);
  CHECK_GE(account.waiting, 1);
  if (--account.waiting > 0) return;
  last_left_served_ = account.served;
  if (++idle_ > kMostIdle) ForgetIdle();
}

void FairShare::Charge(const std::string& principal, int64_t cost) {
  const auto found = accounts_.find(principal);
  if (found != accounts_.end()) found->second.served += cost;
}

// The one who was served least: it loses the least, for coming back lifts it anyway.
void FairShare::ForgetIdle() {
  auto least = accounts_.end();
  for (auto it = accounts_.begin(); it != accounts_.end(); ++it) {
    if (it->second.waiting > 0) continue;
    if (least == accounts_.end() || it->second.served < least->second.served) least = it;
  }
  accounts_.erase(least);
  --idle_;
}

}  // namespace tidepool::engine
