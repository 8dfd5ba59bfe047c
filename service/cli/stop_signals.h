// StopSignals: what a server makes of the signals that end it, one after the other.
#ifndef TIDEPOOL_SERVICE_CLI_STOP_SIGNALS_H_
#define TIDEPOOL_SERVICE_CLI_STOP_SIGNALS_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "kernels/base/mutex.h"

namespace tidepool::service {

// Thread-safe. Where there is no server yet, the first signal ends the process with 0. Else it
// begins the drain, as OnDrain does. The second one cuts the drain short; if the process has not
// ended after `hurry`, it ends with 128 and the signal's number. So does a third one at once, and a
// second one after the server has left.
class StopSignals {
 public:
  enum class Request : uint8_t { kStop, kReread };

  explicit StopSignals(absl::Duration hurry) : hurry_(hurry) {}

  // `cut_short` ends the server that now runs, and can be called until ServerLeaves has returned. A
  // thread of its own calls it.
  void ServerIs(std::function<void()> cut_short);
  // Waits for a call of cut_short. Required after ServerIs.
  void ServerLeaves();

  // SIGINT or SIGTERM.
  void Stop(int signal);
  // The configuration is to be read again.
  void Reread();
  // A client has asked for the drain.
  void OnDrain();

  // A second signal came.
  bool hurried();

  // Waits for one.
  Request Next();

 private:
  const absl::Duration hurry_;
  base::Mutex mutex_;
  base::CondVar changed_;
  std::function<void()> cut_short_ TIDEPOOL_GUARDED_BY(mutex_);
  bool serving_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  bool stop_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  bool reread_ TIDEPOOL_GUARDED_BY(mutex_) = false;
  int signals_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
  std::thread cutter_;  // made before cut_short_ is taken away
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_STOP_SIGNALS_H_
