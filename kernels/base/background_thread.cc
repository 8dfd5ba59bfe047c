#include "kernels/base/background_thread.h"

#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/clock.h"

namespace tidepool::base {
namespace {

constexpr absl::Duration kTurn = absl::Microseconds(500);
// What a thread may use without pauses, and the share of the time in which this comes back.
constexpr absl::Duration kMaxCredit = absl::Milliseconds(20);
constexpr double kCreditShare = 0.02;

struct Turns {
  bool background = false;
  absl::Duration turn_began;  // monotonic
  absl::Duration used;        // CPU time when the turn began
  absl::Duration credit = kMaxCredit;
};

thread_local Turns turns;

}  // namespace

void LowerThreadPriority() {
  constexpr int kNice = 10;  // its weight is about a tenth of the usual one
  const int done = nice(kNice);
  static_cast<void>(done);
  turns.background = true;
}

void PauseIfBackground() {
  if (!turns.background) return;
  const absl::Duration now = Clock::Real().Monotonic();
  const absl::Duration passed = now - turns.turn_began;
  if (passed < kTurn) return;
  const absl::Duration used = ThreadCpuTime();
  turns.credit = std::min(kMaxCredit, turns.credit + passed * kCreditShare) - (used - turns.used);
  turns.turn_began = now;
  turns.used = used;
  if (turns.credit > absl::ZeroDuration()) return;
  turns.credit = absl::ZeroDuration();
  // Linux puts the thread behind those with the same or a higher priority that wait for this CPU.
  sched_yield();
}

absl::Duration ThreadCpuTime() {
  timespec used = {};
  CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
  return absl::DurationFromTimespec(used);
}

}  // namespace tidepool::base
