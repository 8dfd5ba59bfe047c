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

// Loop only. The rate limit is a token bucket that holds one minute's requests and refills evenly.
// So after a quiet minute, a principal may start all of them at once.
class PrincipalQuotas {
 public:
  // A generation's slot among its principal's. The last copy releases it. It may outlive the
  // quotas.
  using Place = std::shared_ptr<void>;

  // The clock outlives this object.
  explicit PrincipalQuotas(const base::Clock* clock) : clock_(clock) {}

  // RESOURCE_EXHAUSTED names the limit and, if known, when to retry.
  absl::StatusOr<Place> Acquire(const std::string& principal, const PrincipalLimits& limits);

 private:
  struct Usage {
    int64_t running = 0;
    double left = 0;        // generations that may start now
    absl::Duration filled;  // when `left` was computed, on the monotonic clock
    bool begun = false;
  };

  const base::Clock* clock_;
  // Bounded: only principals of token files have an entry.
  std::map<std::string, std::shared_ptr<Usage>> usages_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_PRINCIPAL_QUOTAS_H_
