#include "service/http/request_head.h"

#include <gtest/gtest.h>

#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

namespace http = boost::beast::http;

BeastRequestHeader Parsed(const std::string& text) {
  http::request_parser<http::string_body> parser;
  boost::system::error_code error;
  parser.put(boost::asio::buffer(text), error);
  EXPECT_FALSE(error) << error.message();
  return parser.get().base();
}

// Returns the fault of a request that has these header lines.
std::optional<HeaderFault> Fault(const std::string& lines,
                                 const std::string& start = "GET / HTTP/1.1") {
  const BeastRequestHeader header = Parsed(absl::StrCat(start, "\r\n", lines, "\r\n"));
  return FaultOf(header, HeadOf(header));
}

TEST(RequestHeadTest, HasTheFieldsOfTheRequest) {
  const HttpHead head = HeadOf(
      Parsed("POST /v1/a%20b?query HTTP/1.1\r\nHost: here:80\r\nContent-Type: application/json\r\n"
             "X-Api-Key: key\r\nLast-Event-ID: 3\r\n\r\n"));
  EXPECT_EQ(head.method, "POST");
  EXPECT_EQ(head.path, "/v1/a b");
  EXPECT_EQ(head.host, "here:80");
  EXPECT_EQ(head.content_type, "application/json");
  EXPECT_EQ(head.api_key, "key");
  EXPECT_EQ(head.last_event_id, "3");
  EXPECT_EQ(head.authorization, "");
}

TEST(RequestHeadTest, JoinsFieldsThatMayBeRepeated) {
  const HttpHead head =
      HeadOf(Parsed("GET / HTTP/1.1\r\nHost: h\r\ntracestate: a=1\r\ntracestate: b=2\r\n\r\n"));
  EXPECT_EQ(head.tracestate, "a=1,b=2");
}

TEST(RequestHeadTest, AcceptsPlainRequests) {
  EXPECT_FALSE(Fault("Host: h\r\n").has_value());
  EXPECT_FALSE(Fault("", "GET / HTTP/1.0").has_value());
  EXPECT_FALSE(Fault("Host: h\r\nTransfer-Encoding: Chunked\r\n").has_value());
}

TEST(RequestHeadTest, RequiresOneHost) {
  EXPECT_EQ(Fault("")->status, 400);
  EXPECT_EQ(Fault("Host: a\r\nHost: b\r\n")->status, 400);
}

TEST(RequestHeadTest, RefusesRepeatedCredentials) {
  for (const char* name : {"Authorization", "X-Api-Key", "Origin", "Idempotency-Key"}) {
    const auto fault = Fault(absl::StrCat("Host: h\r\n", name, ": a\r\n", name, ": a\r\n"));
    ASSERT_TRUE(fault.has_value()) << name;
    EXPECT_TRUE(absl::StrContains(fault->message, name));
  }
}

TEST(RequestHeadTest, RefusesOtherTransferCodings) {
  EXPECT_EQ(Fault("Host: h\r\nTransfer-Encoding: gzip, chunked\r\n")->status, 501);
}

TEST(RequestHeadTest, RefusesTargetsWithoutAPath) {
  EXPECT_EQ(Fault("Host: h\r\n", "OPTIONS * HTTP/1.1")->status, 400);
}

}  // namespace
}  // namespace tidepool::service
