// HttpFixture: a server in this process, and HTTP requests to it over a socket.
#ifndef TIDEPOOL_TESTS_SERVICE_HTTP_HTTP_FIXTURE_H_
#define TIDEPOOL_TESTS_SERVICE_HTTP_HTTP_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "service/http/json.h"
#include "tests/service/http/raw_client.h"
#include "tests/service/serve_fixture.h"

namespace tidepool::service {

class HttpFixture : public ServeTest {
 protected:
  std::unique_ptr<RawClient> Connect() {
    const std::string address = server_->http_address();
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port)) << address;
    return std::make_unique<RawClient>(port);
  }
  RawResponse Post(const std::string& path, const std::string& body) {
    return Connect()->Post(path, body);
  }
  static Json Parsed(const RawResponse& response) {
    const absl::StatusOr<Json> json = ParseJsonBody(response.body);
    EXPECT_TRUE(json.ok()) << response.body;
    return json.ok() ? *json : Json();
  }
  // Returns the events of a stream, without [DONE], which must be the last one.
  static std::vector<Json> Events(const RawResponse& response) {
    std::vector<Json> events;
    absl::string_view rest = response.body;
    while (absl::ConsumePrefix(&rest, "data: ")) {
      const size_t end = rest.find("\n\n");
      if (end == absl::string_view::npos) break;
      const std::string line(rest.substr(0, end));
      rest.remove_prefix(end + 2);
      if (line == "[DONE]") {
        EXPECT_EQ(rest, "");
        return events;
      }
      events.push_back(*ParseJsonBody(line));
    }
    ADD_FAILURE() << "no [DONE] in " << response.body;
    return events;
  }
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_HTTP_HTTP_FIXTURE_H_
