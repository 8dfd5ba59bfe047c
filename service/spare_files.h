// Whether a new connection may keep its file: some are left to sessions, models and certificates,
// which must not fail because a crowd came.
#ifndef TIDEPOOL_SERVICE_SPARE_FILES_H_
#define TIDEPOOL_SERVICE_SPARE_FILES_H_

#include <sys/resource.h>

namespace tidepool::service {

inline constexpr rlim_t kSpareFiles = 64;

// `fd` was just opened: the kernel gives the lowest number that is free, so it tells how many files
// the process has. The limit is read anew, since operators change it (prlimit).
inline bool LeavesSpareFiles(int fd) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return true;
  return static_cast<rlim_t>(fd) + kSpareFiles < limit.rlim_cur;
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_SPARE_FILES_H_
