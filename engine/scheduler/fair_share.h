// FairShare: counts how much each principal was served. The principal that was served least is
// served next.
//
// The method is the virtual token counters of Y. Sheng et al., "Fairness in Serving Large Language
// Models" (OSDI 2024). Each token that is computed for a principal increases the principal's
// counter. While a principal has no waiting requests, it gets no advantage for later. The waiting
// principal with the lowest counter is served next. If two principals always have waiting requests,
// the difference of their counters is bounded, whatever the number of requests that each sends. The
// bound is twice the larger of two costs: the cost of the most expensive prompt, and that of the
// output that the running sequences can still generate.
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

// Engine thread only. The time of each call is logarithmic in the number of principals.
class FairShare {
 public:
  // Costs of a token, as in the paper. An output token costs more, because it needs its own forward
  // pass.
  static constexpr int64_t kPromptCost = 1;
  static constexpr int64_t kOutputCost = 2;
  // Maximum number of principals without waiting requests that are remembered.
  static constexpr size_t kMaxIdle = 1024;

  // Must be called when a request of this principal begins to wait, and when it stops waiting.
  void BeginWaiting(const std::string& principal);
  void EndWaiting(const std::string& principal);

  // Adds the cost of work for this principal. A principal that was forgotten is not charged.
  // Requires: cost >= 0.
  void Charge(const std::string& principal, int64_t cost);

  // Requires: the principal has a waiting request.
  int64_t served(const std::string& principal) const { return accounts_.at(principal).served; }

 private:
  struct Account {
    int64_t served = 0;
    int64_t waiting = 0;  // number of waiting requests
  };

  // Pairs of cost and name, in ascending order. The name is a key of accounts_.
  using Order = std::set<std::pair<int64_t, std::string_view>>;

  void ForgetIdle();

  std::map<std::string, Account, std::less<>> accounts_;
  // Each account is in one of these two orders.
  Order waiting_;
  Order idle_;                    // principals without waiting requests
  int64_t last_left_served_ = 0;  // cost of the principal that stopped waiting last
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_SCHEDULER_FAIR_SHARE_H_
