// HttpLog: what became of HTTP requests: a count of each status, and a line of each error.
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

// By path, as the table of routes has it, and status.
using HttpCounts = std::map<std::pair<std::string, int>, int64_t>;

// Thread-safe.
class HttpLog {
 public:
  // `log` may be empty, and is called on any thread; the clock outlives this.
  HttpLog(LogSink log, const base::Clock* clock) : log_(std::move(log)), clock_(clock) {}

  // `route` is the request's path as the table has it; of a path that is not served, or a request
  // that could not be read, "other". Nothing that a body says is in a line: an error's `code` and
  // the field's name are. At most kMaxLinesPerSecond lines; the next one tells how many were left
  // out.
  void OnResponse(absl::string_view route, const HttpHead& head, const HttpResponse& response);

  HttpCounts counts() const;

  static constexpr int kMaxLinesPerSecond = 20;

 private:
  // Whether a line may be written now, and how many were left out before it.
  bool TakeLine(int64_t* left_out);

  const LogSink log_;
  const base::Clock* const clock_;
  mutable base::Mutex mutex_;
  HttpCounts counts_ TIDEPOOL_GUARDED_BY(mutex_);
  absl::Duration second_ TIDEPOOL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();  // that runs
  int lines_ TIDEPOOL_GUARDED_BY(mutex_) = 0;                                      // of that second
  int64_t left_out_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_LOG_H_
