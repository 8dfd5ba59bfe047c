// FairShare: how much each principal was served, so that the one who was served least goes next.
//
// The virtual token counters of Y. Sheng et al., "Fairness in Serving Large Language Models" (OSDI
// 2024): each token that is computed for a principal raises its counter, one that has nothing
// waiting saves nothing up, and of those that wait the lowest counter is next. Of two principals
// that both always have something waiting, neither gets ahead of the other by more than twice the
// larger of the dearest prompt and what the sequences that run together can still make, however
// many requests either sends.
#ifndef TIDEPOOL_ENGINE_SCHEDULER_FAIR_SHARE_H_
#define TIDEPOOL_ENGINE_SCHEDULER_FAIR_SHARE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

namespace tidepool::engine {

// Engine thread only. Every call takes time logarithmic in the number of principals.
class FairShare {
 public:
  // Of a token, as in the paper: an output token takes a pass of its own.
  static constexpr int64_t kPromptCost = 1;
  static constexpr int64_t kOutputCost = 2;
  // Principals that are remembered while they have nothing waiting.
  static constexpr size_t kMaxIdle = 1024;

  // A request of this principal begins to wait, or ends to.
  void BeginWaiting(const std::string& principal);
  void EndWaiting(const std::string& principal);

  // It was served; `cost` is at least 0. Whoever is forgotten is not charged.
  void Charge(const std::string& principal, int64_t cost);

  // Requires: the principal has a request that waits.
  int64_t served(const std::string& principal) const { return accounts_.at(principal).served; }

 private:
  struct Account {
    int64_t served = 0;
    int64_t waiting = 0;  // requests
  };

  // Served so much, and the name, a key of accounts_: least first, of equals the first by name.
  using Order = std::set<std::pair<int64_t, std::string_view>>;

  void ForgetIdle();

  std::map<std::string, Account, std::less<>> accounts_;
  // Each account is in one of these.
  Order waiting_;
  Order idle_;                    // with nothing waiting
  int64_t last_left_served_ = 0;  // of whoever was the last to have nothing waiting any more
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_FAIR_SHARE_H_
