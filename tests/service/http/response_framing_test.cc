#include "service/http/response_framing.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace tidepool::service {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(784111777);

TEST(ResponseFramingTest, WritesTheHeadOfACompleteResponse) {
  const HttpResponse response = {.status = 429, .headers = {{"Retry-After", "2"}}};
  const ResponseFraming framing = {.common_headers = {{"x-request-id", "a"}}, .keep_alive = true};
  EXPECT_EQ(ResponseHeadText(response, framing, 5, kNow),
            "HTTP/1.1 429 Too Many Requests\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            "Content-Type: application/json\r\nRetry-After: 2\r\nx-request-id: a\r\n"
            "Content-Length: 5\r\n\r\n");
}

TEST(ResponseFramingTest, WritesTheHeadOfAStream) {
  const ResponseFraming framing = {.keep_alive = true, .chunked = true};
  const std::string text =
      ResponseHeadText({.content_type = "text/event-stream"}, framing, std::nullopt, kNow);
  EXPECT_TRUE(absl::StrContains(text, "\r\nTransfer-Encoding: chunked\r\n")) << text;
  EXPECT_FALSE(absl::StrContains(text, "Content-Length")) << text;
}

TEST(ResponseFramingTest, SaysWhetherTheConnectionStaysOpen) {
  const auto text = [](bool keep_alive, bool http_1_0) {
    return ResponseHeadText({}, {.http_1_0 = http_1_0, .keep_alive = keep_alive}, 0, kNow);
  };
  EXPECT_FALSE(absl::StrContains(text(true, false), "Connection:"));
  EXPECT_TRUE(absl::StrContains(text(true, true), "\r\nConnection: keep-alive\r\n"));
  EXPECT_TRUE(absl::StrContains(text(false, false), "\r\nConnection: close\r\n"));
  EXPECT_TRUE(absl::StrContains(text(false, true), "\r\nConnection: close\r\n"));
}

TEST(ResponseFramingTest, OmitsAnEmptyContentType) {
  EXPECT_FALSE(absl::StrContains(
      ResponseHeadText({.status = 204, .content_type = ""}, {}, std::nullopt, kNow),
      "Content-Type"));
}

TEST(ResponseFramingTest, WritesTheLengthOfAChunkInHex) {
  EXPECT_EQ(BodyChunk("0123456789abcdef!"), "11\r\n0123456789abcdef!\r\n");
}

}  // namespace
}  // namespace tidepool::service
