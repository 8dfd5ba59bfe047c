// PrincipalQuotas: enforces the limits of each principal at this front.
#ifndef TIDEPOOL_SERVICE_FRONT_PRINCIPAL_QUOTAS_H_
#define TIDEPOOL_SERVICE_FRONT_PRINCIPAL_QUOTAS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "service/auth/caller.h"

namespace tidepool::service {

// Use it on the loop only. The rate limit is a token bucket. The bucket holds the requests of one
// minute and is refilled evenly. So after a minute without requests, a principal may start all
// requests of a minute at once.
class PrincipalQuotas {
 public:
  // A generation's slot among the slots of its principal. The slot is free again when the last copy
  // is destroyed. It may outlive this object.
  using Place = std::shared_ptr<void>;

  // The clock must outlive this object.
  explicit PrincipalQuotas(const base::Clock* clock) : clock_(clock) {}

  // The error RESOURCE_EXHAUSTED names the limit and, if known, when to retry.
  absl::StatusOr<Place> Acquire(const std::string& principal, const PrincipalLimits& limits);

 private:
  struct Usage {
    int64_t running = 0;
    double left = 0;        // number of generations that may start now
    absl::Duration filled;  // when `left` was computed, on the monotonic clock
    bool begun = false;
  };

  const base::Clock* clock_;
  // Its size is limited, because only principals of the token file have an entry.
  std::map<std::string, std::shared_ptr<Usage>> usages_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_PRINCIPAL_QUOTAS_H_
