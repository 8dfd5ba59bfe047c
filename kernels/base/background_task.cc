#include "kernels/base/background_task.h"

#include <sched.h>

#include "kernels/base/check.h"

namespace tidepool::base {
namespace {

thread_local BackgroundTask* current_task = nullptr;

void Yield() { sched_yield(); }

}  // namespace

BackgroundTask::BackgroundTask() : BackgroundTask(&Clock::Real(), Yield) {}

BackgroundTask::BackgroundTask(const Clock* clock, absl::FunctionRef<void()> yield)
    : clock_(clock), yield_(yield), turn_end_(clock->Monotonic() + kUndisturbed) {
  CHECK(current_task == nullptr) << "this thread has a task";
  current_task = this;
}

BackgroundTask::~BackgroundTask() { current_task = nullptr; }

void BackgroundTask::EndTurn() {
  yield_();
  turn_end_ = clock_->Monotonic() + kTurn;
}

bool TurnIsOver() {
  return current_task != nullptr && current_task->clock_->Monotonic() >= current_task->turn_end_;
}

void LetOthersRun() {
  if (TurnIsOver()) current_task->EndTurn();
}

}  // namespace tidepool::base
