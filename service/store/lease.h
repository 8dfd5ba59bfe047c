// Checks the time at which a session's lease ends. A renewal changes only this time, so no hash of
// the session covers it. Damage to this time is detected only if it makes the time later than any
// lease can end.
#ifndef TIDEPOOL_SERVICE_STORE_LEASE_H_
#define TIDEPOOL_SERVICE_STORE_LEASE_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tidepool::service {

// The maximum length of a lease that callers of a store request.
inline constexpr absl::Duration kMaxLease = absl::Minutes(1);

// Returns whether a lease that ends at `until_us` is held at `now_us`. If `until_us` is later than
// any lease can end, it is damaged. Then returns false, so that the damage does not keep the
// session busy for years.
inline bool HoldsLease(int64_t until_us, int64_t now_us) {
  return until_us > now_us && until_us <= now_us + absl::ToInt64Microseconds(kMaxLease);
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_STORE_LEASE_H_
