// WaitLine: shows how many seconds a user has waited for the first token of a response.
#ifndef TIDEPOOL_SERVICE_CLI_WAIT_LINE_H_
#define TIDEPOOL_SERVICE_CLI_WAIT_LINE_H_

#include <memory>
#include <thread>

#include "absl/synchronization/notification.h"
#include "service/cli/console.h"

namespace tidepool::service {

// Thread-compatible. Between Start and Stop, a line on stderr counts the seconds, from the third
// second on. It is shown only if stderr is a terminal. Other code must not write to the console
// between Start and Stop.
class WaitLine {
 public:
  explicit WaitLine(Console* console) : console_(console) {}
  ~WaitLine() { Stop(); }

  void Start();
  // Erases the line. May be called at any time and more than once.
  void Stop();

 private:
  Console* const console_;
  std::unique_ptr<absl::Notification> stop_;
  std::thread ticker_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_WAIT_LINE_H_
