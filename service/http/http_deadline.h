// HttpDeadline: the time limit of the operation that a connection runs now.
#ifndef TIDEPOOL_SERVICE_HTTP_HTTP_DEADLINE_H_
#define TIDEPOOL_SERVICE_HTTP_HTTP_DEADLINE_H_

#include <boost/asio/steady_timer.hpp>
#include <cstdint>
#include <utility>

#include "absl/time/time.h"
#include "service/http/http_socket.h"

namespace tidepool::service {

// Use it on the socket's executor only.
class HttpDeadline {
 public:
  explicit HttpDeadline(const HttpSocket::executor_type& executor) : timer_(executor) {}

  // Calls `on_passed` after `time`, unless Set or Clear is called before. `on_passed` must hold a
  // reference to the object that contains this HttpDeadline.
  template <typename Function>
  void Set(absl::Duration time, Function on_passed) {
    const int64_t mine = ++current_;
    timer_.expires_after(absl::ToChronoNanoseconds(time));
    timer_.async_wait([this, mine, on_passed = std::move(on_passed)](const auto& error) {
      if (!error && mine == current_) on_passed();
    });
  }

  void Clear() {
    ++current_;
    timer_.cancel();
  }

 private:
  boost::asio::steady_timer timer_;
  // Number of the current deadline. The timer handler of an earlier deadline may still run, and
  // does nothing.
  int64_t current_ = 0;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_HTTP_HTTP_DEADLINE_H_
