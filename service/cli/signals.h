// SignalWatcher: SIGINT and SIGTERM as calls on a thread of its own, where anything may be done.
#ifndef TIDEPOOL_SERVICE_CLI_SIGNALS_H_
#define TIDEPOOL_SERVICE_CLI_SIGNALS_H_

#include <csignal>
#include <functional>
#include <initializer_list>
#include <thread>

namespace tidepool::service {

// Thread-compatible. Make it before any other thread: they inherit that the signals are blocked.
class SignalWatcher {
 public:
  // `on_signal` runs on the watcher's thread, once for each signal that arrives.
  SignalWatcher(std::initializer_list<int> signals, std::function<void(int signal)> on_signal);
  // Waits for a running on_signal; the signals stay blocked.
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
