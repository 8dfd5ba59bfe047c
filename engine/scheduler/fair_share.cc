#include "engine/scheduler/fair_share.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace tidepool::engine {

void FairShare::BeginWaiting(const std::string& principal) {
  const auto [found, added] = accounts_.try_emplace(principal);
  Account& account = found->second;
  if (++account.waiting > 1) return;
  if (!added) idle_.erase({account.served, found->first});
  // A principal that returns gets at least the counter of the waiting principal that was served
  // least. So a principal gets no advantage from the time without requests.
  const int64_t least = waiting_.empty() ? last_left_served_ : waiting_.begin()->first;
  account.served = std::max(account.served, least);
  waiting_.emplace(account.served, found->first);
}

void FairShare::EndWaiting(const std::string& principal) {
  const auto found = accounts_.find(principal);
  CHECK(found != accounts_.end()) << principal;
  Account& account = found->second;
  CHECK_GE(account.waiting, 1);
  if (--account.waiting > 0) return;
  last_left_served_ = account.served;
  idle_.insert(waiting_.extract({account.served, found->first}));
  if (idle_.size() > kMaxIdle) ForgetIdle();
}

void FairShare::Charge(const std::string& principal, int64_t cost) {
  const auto found = accounts_.find(principal);
  if (found == accounts_.end()) return;
  Account& account = found->second;
  Order& order = account.waiting > 0 ? waiting_ : idle_;
  auto place = order.extract({account.served, found->first});
  account.served += cost;
  place.value().first = account.served;
  order.insert(std::move(place));
}

// Forgets the idle principal that was served least. Forgetting this principal has the smallest
// effect, because its counter would be increased anyway when it returns.
void FairShare::ForgetIdle() {
  const auto account = accounts_.find(idle_.begin()->second);
  idle_.erase(idle_.begin());
  accounts_.erase(account);
}

}  // namespace tidepool::engine
