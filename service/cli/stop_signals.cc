#include "service/cli/stop_signals.h"

#include <cstdlib>
#include <utility>

#include "absl/time/clock.h"

namespace tidepool::service {
namespace {

// Exit code of a process that a signal ends, as in a shell: this plus the signal's number.
constexpr int kSignalled = 128;

}  // namespace

void StopSignals::ServerIs(std::function<void()> cut_short) {
  base::MutexLock lock(&mutex_);
  cut_short_ = std::move(cut_short);
  serving_ = true;
}

void StopSignals::ServerLeaves() {
  {
    base::MutexLock lock(&mutex_);
    cut_short_ = nullptr;
  }
  if (cutter_.joinable()) cutter_.join();
}

void StopSignals::Stop(int signal) {
  base::MutexLock lock(&mutex_);
  // The server does not run yet, and loading a model cannot be cancelled. So exit at once.
  if (!serving_) std::_Exit(0);
  ++signals_;
  if (signals_ > 2 || (signals_ == 2 && !cut_short_)) std::_Exit(kSignalled + signal);
  if (signals_ == 2) {
    cutter_ = std::thread(cut_short_);
    std::thread([hurry = hurry_, signal] {
      absl::SleepFor(hurry);
      std::_Exit(kSignalled + signal);
    }).detach();
  }
  stop_ = true;
  changed_.NotifyAll();
}

void StopSignals::Reread() {
  base::MutexLock lock(&mutex_);
  reread_ = true;
  changed_.NotifyAll();
}

void StopSignals::OnDrain() {
  base::MutexLock lock(&mutex_);
  stop_ = true;
  changed_.NotifyAll();
}

bool StopSignals::hurried() {
  base::MutexLock lock(&mutex_);
  return signals_ > 1;
}

StopSignals::Request StopSignals::Next() {
  base::MutexLock lock(&mutex_);
  while (!stop_ && !reread_) changed_.Wait(&mutex_);
  if (stop_) return Request::kStop;
  reread_ = false;
  return Request::kReread;
}

}  // namespace tidepool::service
