#include "service/http/http_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "service/cli/log.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::service {
namespace {

HttpResponse Error(int status, const std::string& body) {
  HttpResponse response;
  response.status = status;
  response.body = body;
  return response;
}

TEST(HttpLogTest, LinesAreFewHoweverManyAreRefused) {
  fakes::ManualClock clock;
  std::vector<std::string> lines;
  HttpLog log([&](LogLevel, absl::string_view line,
                  LogFields fields) { lines.push_back(LogText(line, fields)); },
              &clock);
  const HttpHead head = {.method = "GET", .path = "/x"};
  for (int i = 0; i < HttpLog::kMaxLinesPerSecond + 7; ++i) {
    log.OnResponse("other", head, Error(404, ""));
  }
  EXPECT_EQ(lines.size(), HttpLog::kMaxLinesPerSecond);
  clock.Advance(absl::Seconds(1));
  log.OnResponse("other", head, Error(404, ""));
  EXPECT_EQ(lines.back(), "http request refused status=404 method=GET path=/x left_out=7");
  log.OnResponse("other", head, Error(404, ""));
  EXPECT_EQ(lines.back(), "http request refused status=404 method=GET path=/x");
  EXPECT_EQ(log.counts().at({"other", 404}), HttpLog::kMaxLinesPerSecond + 9);
}

TEST(HttpLogTest, NothingButNamesIsTakenFromBodies) {
  fakes::ManualClock clock;
  std::vector<std::string> lines;
  HttpLog log([&](LogLevel, absl::string_view line,
                  LogFields fields) { lines.push_back(LogText(line, fields)); },
              &clock);
  log.OnResponse("/a", {.method = "POST", .path = "/a\n\xff"},
                 Error(400, R"({"error":{"message":"secret","code":"c","param":"a b"}})"));
  EXPECT_EQ(lines.back(),
            "http request refused status=400 method=POST path=\"/a\\n\xEF\xBF\xBD\" code=c");
  for (const int status : {200, 204, 401}) log.OnResponse("/a", {}, Error(status, ""));
  HttpResponse told = Error(500, "");
  told.failure_log = HttpResponse::FailureLog::kElsewhere;
  log.OnResponse("/a", {}, told);
  EXPECT_EQ(lines.size(), 1);
  EXPECT_EQ(log.counts().size(), 5);
}

}  // namespace
}  // namespace tidepool::service
