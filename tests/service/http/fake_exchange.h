// FakeExchange: an exchange that records the response. Its socket takes bytes when the test calls
// TakeAll.
#ifndef TIDEPOOL_TESTS_SERVICE_HTTP_FAKE_EXCHANGE_H_
#define TIDEPOOL_TESTS_SERVICE_HTTP_FAKE_EXCHANGE_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "service/http/http_exchange.h"

namespace tidepool::service {

// Use it on the test's thread only. Posted tasks run at once.
class FakeExchange final : public HttpExchange {
 public:
  void Post(std::function<void()> task) override { task(); }
  void Answer(HttpResponse response) override { answer = std::move(response); }
  void BeginStream(HttpResponse head) override { stream = std::move(head); }
  void Write(std::string bytes, std::function<void()> taken) override {
    written.push_back(std::move(bytes));
    untaken_.push_back(std::move(taken));
  }
  void EndStream() override { ended = true; }
  void OnGone(std::function<void()> callback) override { gone = std::move(callback); }

  // The socket takes all bytes that were written until now.
  void TakeAll() {
    for (const auto& taken : std::exchange(untaken_, {})) {
      if (taken) taken();
    }
  }

  std::optional<HttpResponse> answer;
  std::optional<HttpResponse> stream;  // the head of a streamed response
  std::vector<std::string> written;
  bool ended = false;
  std::function<void()> gone;

 private:
  std::vector<std::function<void()>> untaken_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_HTTP_FAKE_EXCHANGE_H_
