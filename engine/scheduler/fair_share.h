// FairShare: counts how much each principal was served, so that the one served least goes next.
//
// These are the virtual token counters of Y. Sheng et al., "Fairness in Serving Large Language
// Models" (OSDI 2024). Each token computed for a principal raises its counter. A principal without
// waiting requests gains no credit. Of the waiting principals, the lowest counter goes next. Two
// principals that always have waiting requests differ by a bounded amount, however many requests
// each sends: at most twice the larger of the most expensive prompt and the output that the running
// sequences can still generate.
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
  // Costs of a token, as in the paper: an output token needs a forward pass of its own.
  static constexpr int64_t kPromptCost = 1;
  static constexpr int64_t kOutputCost = 2;
  // Maximum number of principals to remember without waiting requests.
  static constexpr size_t kMaxIdle = 1024;

  // A request of this principal begins to wait, or stops waiting.
  void BeginWaiting(const std::string& principal);
  void EndWaiting(const std::string& principal);

  // The principal was served. Requires: cost >= 0. A forgotten principal is not charged.
  void Charge(const std::string& principal, int64_t cost);

  // Requires: the principal has a waiting request.
  int64_t served(const std::string& principal) const { return accounts_.at(principal).served; }

 private:
  struct Account {
    int64_t served = 0;
    int64_t waiting = 0;  // number of requests
  };

  // Pairs of cost and name, which is a key of accounts_. Ascending by cost, then by name.
  using Order = std::set<std::pair<int64_t, std::string_view>>;

  void ForgetIdle();

  std::map<std::string, Account, std::less<>> accounts_;
  // Each account is in one of these two.
  Order waiting_;
  Order idle_;                    // without waiting requests
  int64_t last_left_served_ = 0;  // cost of the last principal that stopped waiting
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_FAIR_SHARE_H_
