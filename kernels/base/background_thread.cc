#include "kernels/base/background_thread.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

#include "absl/time/time.h"

namespace tidepool::base {
namespace {

// Linux's struct sched_attr, as in sched_setattr(2). Debian's header with it contradicts <sched.h>.
struct SchedulingAttributes {
  uint32_t size;
  uint32_t policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime;  // for threads that are not real-time: the slice, in nanoseconds
  uint64_t deadline;
  uint64_t period;
};

constexpr int kNice = 19;
constexpr absl::Duration kSlice = absl::Microseconds(100);

}  // namespace

void LowerThreadPriority() {
  const SchedulingAttributes attributes = {
      .size = sizeof(attributes),
      .policy = SCHED_BATCH,
      .nice = kNice,
      .runtime = static_cast<uint64_t>(absl::ToInt64Nanoseconds(kSlice)),
  };
  if (syscall(SYS_sched_setattr, 0, &attributes, 0) == 0) return;
  const int done = nice(kNice);
  static_cast<void>(done);
}

}  // namespace tidepool::base
