// StopSignals: how a server reacts to the first, second and third stop signal.
#ifndef TIDEPOOL_SERVICE_CLI_STOP_SIGNALS_H_
#define TIDEPOOL_SERVICE_CLI_STOP_SIGNALS_H_

#include <cstdint>
#include <functional>
#include <thread>

#include "absl/time/time.h"
#include "kernels/base/mutex.h"

namespace tidepool::service {

// Thread-safe. Before the server runs, the first signal ends the process with code 0. When the
// server runs, the first signal begins the drain, like OnDrain, and the second one interrupts the
// drain. If the process is still alive `hurry` after the second signal, it exits with 128 plus the
// signal's number. It also exits at once on a third signal, or on a second signal after
// ServerLeaves.
class StopSignals {
 public:
  enum class Request : uint8_t { kStop, kReread };

  explicit StopSignals(absl::Duration hurry) : hurry_(hurry) {}

  // `cut_short` interrupts the drain of the running server. It is called on its own thread, and not
  // after ServerLeaves has returned.
  void ServerIs(std::function<void()> cut_short);
  // Waits until a running call of cut_short has returned. Must be called after ServerIs.
  void ServerLeaves();

  // Handles SIGINT or SIGTERM.
  void Stop(int signal);
  // Requests that the configuration is read again.
  void Reread();
  // Begins the drain because a client requested it.
  void OnDrain();

  // True after a second signal.
  bool hurried();

  // Blocks until there is a request.
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
  std::thread cutter_;  // joined before cut_short_ is cleared
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_STOP_SIGNALS_H_
