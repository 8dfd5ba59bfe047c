// The end of a session's lease. It changes without the session, so no hash covers it. Only its
// range shows damage.
#ifndef TIDEPOOL_SERVICE_STORE_LEASE_H_
#define TIDEPOOL_SERVICE_STORE_LEASE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tidepool::service {

// The longest lease that a store is asked for.
inline constexpr absl::Duration kMaxLease = absl::Minutes(1);

// Whether a lease with this end is held at `now_us`. An end after the end of every possible lease
// is damage: then no lease is held, so that the damage does not keep the session busy for years.
inline bool HoldsLease(int64_t until_us, int64_t now_us) {
  return until_us > now_us && until_us <= now_us + absl::ToInt64Microseconds(kMaxLease);
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_LEASE_H_
