// FileWatch: reloads files every second and logs the results.
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

// Thread-compatible. Uses its own thread, because disks may be slow. Without files there is no
// thread.
class FileWatch {
 public:
  using Reread = std::function<absl::StatusOr<Rereading>()>;

  // `log` is called on the watch's thread.
  explicit FileWatch(LogSink log) : log_(std::move(log)) {}

  // Calls `reread` periodically. `what` names the files in the log. `reread` must outlive this
  // object.
  void Add(std::string what, Reread reread);

 private:
  void LookLater(EventLoop* loop, std::string what, Reread reread);

  const LogSink log_;
  std::unique_ptr<EventLoop> loop_;  // null: nothing is watched
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_FILE_WATCH_H_
