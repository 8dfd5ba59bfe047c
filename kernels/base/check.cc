#include "kernels/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tidepool::base {

[[gnu::cold]] CheckFailure::CheckFailure(const char* file, int line, const char* condition)
    : message_(std::make_unique<std::ostringstream>()) {
  *message_ << file << ":" << line << ": CHECK(" << condition << ") failed. ";
}

CheckFailure::~CheckFailure() {
  std::fprintf(stderr, "%s\n", message_->str().c_str());
  std::abort();
}

std::ostream& CheckFailure::stream() { return *message_; }

}  // namespace tidepool::base

#ifdef __SANITIZE_THREAD__
// Debian's Abseil is not built for TSan, which so does not see that a status counts its owners.
extern "C" const char* __tsan_default_suppressions() { return "race:Status::Unref\n"; }
#endif
