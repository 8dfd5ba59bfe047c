// BackgroundTask: lets other threads run while a thread of low priority does long work.
//
//   LowerThreadPriority();
//   {
//     const BackgroundTask task;
//     ... LetOthersRun();  // often, anywhere in the work
//   }
//
// A low priority alone is not enough. While a thread of a forward pass sleeps, the other thread
// gets its CPU, and may keep it until the next tick of the kernel (4 ms with 250 ticks per second).
#ifndef TIDEPOOL_KERNELS_BASE_BACKGROUND_TASK_H_
#define TIDEPOOL_KERNELS_BASE_BACKGROUND_TASK_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"

namespace tidepool::base {

// A task that the calling thread runs while this object exists. A thread has at most one.
class BackgroundTask {
 public:
  // Short tasks, such as most grammars, are not slowed down: a task gives up the CPU only after it
  // has run for kUndisturbed. From then on, it does so whenever it has run for kTurn.
  static constexpr absl::Duration kUndisturbed = absl::Milliseconds(5);
  static constexpr absl::Duration kTurn = absl::Microseconds(100);

  BackgroundTask();
  // For tests: calls `yield` to give up the CPU. `clock` and `yield` must outlive the object.
  BackgroundTask(const Clock* clock, absl::FunctionRef<void()> yield);
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

 private:
  friend bool TurnIsOver();
  friend void LetOthersRun();
  void EndTurn();

  const Clock* const clock_;
  const absl::FunctionRef<void()> yield_;
  absl::Duration turn_end_;
};

// Gives up the CPU if the calling thread has a BackgroundTask and its turn is over. Other threads
// that are ready to run then run first. Does nothing on a thread without a BackgroundTask.
void LetOthersRun();

// Returns whether LetOthersRun would give up the CPU. For code that releases a lock before it.
bool TurnIsOver();

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_BACKGROUND_TASK_H_
