#include "kernels/base/check.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace tidepool::base {

[[gnu::cold]] CheckFailure::CheckFailure(const char* file, int line, const char* condition)
    : message_(std::make_unique<std::ostringstream>()) {
  *message_ << file << ":" << line << ": CHECK(" << condition << ") failed. ";
}

CheckFailure::~CheckFailure() {
  // A pipe that nobody reads must not keep the process from ending, so wait at most one second.
  std::string text = message_->str() + "\n";
  pollfd file = {STDERR_FILENO, POLLOUT, 0};
  while (!text.empty() && poll(&file, 1, /*timeout=*/1000) > 0) {
    const ssize_t written =
        write(STDERR_FILENO, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written <= 0) break;
    text.erase(0, static_cast<size_t>(written));
  }
  std::abort();
}

std::ostream& CheckFailure::stream() { return *message_; }

}  // namespace tidepool::base

#ifdef __SANITIZE_THREAD__
// Debian's Abseil is not built for TSan. So TSan does not see the synchronisation of a status's
// reference count.
extern "C" const char* __tsan_default_suppressions() { return "race:Status::Unref\n"; }
#endif
