// SignalWatcher: receives signals on its own thread and calls a function there. So the function
// need not be async-signal-safe.
#ifndef TIDEPOOL_SERVICE_CLI_SIGNALS_H_
#define TIDEPOOL_SERVICE_CLI_SIGNALS_H_

#include <csignal>
#include <functional>
#include <initializer_list>
#include <thread>

namespace tidepool::service {

// Thread-compatible. Create it before any other thread, so that all threads inherit the blocked
// signals.
class SignalWatcher {
 public:
  // `on_signal` runs on the watcher's thread, once for each signal that arrives.
  SignalWatcher(std::initializer_list<int> signals, std::function<void(int signal)> on_signal);
  // Waits until a running on_signal has returned. The signals stay blocked.
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  void Run();

  std::function<void(int)> on_signal_;
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_SIGNALS_H_
