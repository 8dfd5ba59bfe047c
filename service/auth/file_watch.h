// FileWatch: looks at files every second and tells the operator what came of it.
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

// Thread-compatible. On a thread of its own, since a disk may take its time; without files there is
// none.
class FileWatch {
 public:
  using Reread = std::function<absl::StatusOr<Rereading>()>;

  // `log` is called on that thread.
  explicit FileWatch(LogSink log) : log_(std::move(log)) {}

  // `what` is read again by `reread`, which outlives this.
  void Add(std::string what, Reread reread);

 private:
  void LookLater(EventLoop* loop, std::string what, Reread reread);

  const LogSink log_;
  std::unique_ptr<EventLoop> loop_;  // null: nothing is watched
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_FILE_WATCH_H_
