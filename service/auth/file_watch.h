// FileWatch: rereads files every second, and logs if they have changed or have errors.
#ifndef TIDEPOOL_SERVICE_AUTH_FILE_WATCH_H_
#define TIDEPOOL_SERVICE_AUTH_FILE_WATCH_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "service/auth/watched_files.h"
#include "service/base/event_loop.h"
#include "service/base/log_level.h"

namespace tidepool::service {

// Thread-compatible. Reads on its own thread, because disks may be slow. If no files were added,
// there is no thread.
class FileWatch {
 public:
  using Reread = std::function<absl::StatusOr<Rereading>()>;

  // `log` is called on the thread of this object.
  explicit FileWatch(LogSink log) : log_(std::move(log)) {}

  // Calls `reread` every second until this object is destroyed. `what` names the files in the log.
  // Objects that `reread` uses must live until then.
  void Add(std::string what, Reread reread);

 private:
  void LookLater(EventLoop* loop, std::string what, Reread reread);

  const LogSink log_;
  std::unique_ptr<EventLoop> loop_;  // null: no files were added
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_FILE_WATCH_H_
