// HttpLog: counts HTTP responses by status, and logs errors.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_LOG_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_LOG_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "service/base/log_level.h"
#include "service/http/http_exchange.h"

namespace tidepool::service {

// By path of the routing table, and status.
using HttpCounts = std::map<std::pair<std::string, int>, int64_t>;

// Thread-safe.
class HttpLog {
 public:
  // `log` may be empty, and is called on any thread. The clock outlives this object.
  HttpLog(LogSink log, const base::Clock* clock) : log_(std::move(log)), clock_(clock) {}

  // `route` is the path in the routing table, or "other" for an unknown path or an unreadable
  // request. A line contains an error's `code` and the field's name, but nothing else from the
  // body. At most kMaxLinesPerSecond lines are written. The next line has the number of omitted
  // ones.
  void OnResponse(absl::string_view route, const HttpHead& head, const HttpResponse& response);

  HttpCounts counts() const;

  static constexpr int kMaxLinesPerSecond = 20;

 private:
  // True if a line may be written now. Sets the number of lines that were omitted before it.
  bool TakeLine(int64_t* left_out);

  const LogSink log_;
  const base::Clock* const clock_;
  mutable base::Mutex mutex_;
  HttpCounts counts_ TIDEPOOL_GUARDED_BY(mutex_);
  // the current second
  absl::Duration second_ TIDEPOOL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  int lines_ TIDEPOOL_GUARDED_BY(mutex_) = 0;  // written in that second
  int64_t left_out_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_LOG_H_
