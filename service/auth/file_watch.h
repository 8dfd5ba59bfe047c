// FileWatch: looks at files every second and tells the operator what came of it.
#ifndef TIDEPOOL_SERVICE_AUTH_FILE_WATCH_H_
#define TIDEPOOL_SERVICE_AUTH_FILE_WATCH_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "service/auth/watched_files.h"
#include "service/event_loop.h"
#include "service/log_level.h"

namespace tidepool::service {

// Thread-safe. On a thread of its own, since a disk may take its time.
class FileWatch {
 public:
  // `log` is called on that thread.
  explicit FileWatch(LogSink log) : log_(std::move(log)) {}
  ~FileWatch() { loop_.Stop(); }

  // `what` is read again by `reread`, which outlives this.
  void Add(std::string what, std::function<absl::StatusOr<Rereading>()> reread);

 private:
  const LogSink log_;
  EventLoop loop_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_AUTH_FILE_WATCH_H_
