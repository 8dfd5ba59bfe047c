// PrincipalQuotas: what the limits of a principal leave for it at this front.
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

// Loop only. A rate is a bucket that holds a minute's worth and fills evenly: who was silent may
// start as many at once.
class PrincipalQuotas {
 public:
  // A generation's place among its principal's. It is given back when the last copy goes; it may
  // outlive the quotas.
  using Place = std::shared_ptr<void>;

  // The clock outlives it.
  explicit PrincipalQuotas(const base::Clock* clock) : clock_(clock) {}

  // RESOURCE_EXHAUSTED names the limit, and when to come back where that is known.
  absl::StatusOr<Place> Acquire(const std::string& principal, const PrincipalLimits& limits);

 private:
  struct Usage {
    int64_t running = 0;
    double left = 0;        // generations that may start now
    absl::Duration filled;  // when `left` was right, on the monotonic clock
    bool begun = false;
  };

  const base::Clock* clock_;
  // As many as token files have named.
  std::map<std::string, std::shared_ptr<Usage>> usages_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_PRINCIPAL_QUOTAS_H_
