// HttpLog: counts HTTP responses by status, and logs errors. It limits what a line shows of a
// client's text.
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

// Number of responses by path and status. The path is written as in the routing table.
using HttpCounts = std::map<std::pair<std::string, int>, int64_t>;

// Thread-safe.
class HttpLog {
 public:
  // `log` may be empty. It is called on any thread. The clock outlives this object.
  HttpLog(LogSink log, const base::Clock* clock) : log_(std::move(log)), clock_(clock) {}

  // Counts a response, and logs a line if it is an error. `route` is the path in the routing table,
  // or "other" if the path is unknown or the request is unreadable. From the response's body, a
  // line contains only the error's `code` and the field's name. At most kMaxLinesPerSecond lines
  // are written. The next line says how many lines were left out.
  void OnResponse(absl::string_view route, const HttpHead& head, const HttpResponse& response);

  HttpCounts counts() const;

  static constexpr int kMaxLinesPerSecond = 20;

 private:
  // Returns whether a line may be written now. Sets `left_out` to the number of lines that were
  // left out before it.
  bool TakeLine(int64_t* left_out);

  const LogSink log_;
  const base::Clock* const clock_;
  mutable base::Mutex mutex_;
  HttpCounts counts_ TIDEPOOL_GUARDED_BY(mutex_);
  // the current second, in which lines_ are counted
  absl::Duration second_ TIDEPOOL_GUARDED_BY(mutex_) = -absl::InfiniteDuration();
  int lines_ TIDEPOOL_GUARDED_BY(mutex_) = 0;  // lines written in the current second
  int64_t left_out_ TIDEPOOL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_LOG_H_
