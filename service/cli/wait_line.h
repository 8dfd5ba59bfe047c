// WaitLine: what a person sees while an answer's first word is computed.
#ifndef TIDEPOOL_SERVICE_CLI_WAIT_LINE_H_
#define TIDEPOOL_SERVICE_CLI_WAIT_LINE_H_

#include <memory>
#include <thread>

#include "absl/synchronization/notification.h"
#include "service/cli/console.h"

namespace tidepool::service {

// Thread-compatible. Between Start and Stop a line on stderr, where that is a terminal, counts the
// seconds, from the third on. While it runs nobody else writes to the console.
class WaitLine {
 public:
  explicit WaitLine(Console* console) : console_(console) {}
  ~WaitLine() { Stop(); }

  void Start();
  // Takes the line away. May be called at any time, also again.
  void Stop();

 private:
  Console* const console_;
  std::unique_ptr<absl::Notification> stop_;
  std::thread ticker_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_WAIT_LINE_H_
