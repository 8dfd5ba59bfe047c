// Decides whether a new connection may be kept open. Connections must leave some file descriptors
// for sessions, models and certificates: these files must be readable even if there are too many
// connections.
#ifndef TIDEPOOL_SERVICE_BASE_FD_HEADROOM_H_
#define TIDEPOOL_SERVICE_BASE_FD_HEADROOM_H_

#include <sys/resource.h>

namespace tidepool::service {

inline constexpr rlim_t kFdHeadroom = 64;

// Requires: `fd` was just opened. The kernel assigns the lowest free number, so `fd` shows how many
// files are open. The limit is read again each time, because operators can change it (prlimit).
inline bool LeavesFdHeadroom(int fd) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  return static_cast<rlim_t>(fd) + kFdHeadroom < limit.rlim_cur;
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_BASE_FD_HEADROOM_H_
