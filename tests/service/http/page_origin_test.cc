#include "service/http/page_origin.h"

#include <gtest/gtest.h>

namespace tidepool::service {
namespace {

bool MayAsk(absl::string_view origin, Pages pages = Pages::kOfThisMachine) {
  const absl::Status status = CheckOrigin(origin, pages);
  EXPECT_TRUE(status.ok() || absl::IsPermissionDenied(status)) << status;
  return status.ok();
}

TEST(PageOriginTest, PagesOfThisMachineAndProgramsMayAsk) {
  for (const char* origin :
       {"", "http://localhost", "http://localhost:3000", "https://127.0.0.1:8443",
        "http://127.1.2.3", "http://[::1]:8080", "http://[::1]"}) {
    EXPECT_TRUE(MayAsk(origin)) << origin;
  }
}

TEST(PageOriginTest, PagesOfOthersMayNot) {
  for (const char* origin :
       {"http://evil.example", "http://evil.example:8080", "https://localhost.evil.example",
        "http://127.0.0.1.evil.example:8080", "http://localhost@evil.example", "null", "localhost",
        "file://", "http://", "http://[::1", "http://192.168.0.1:8080", "http://localhost:"}) {
    EXPECT_FALSE(MayAsk(origin)) << origin;
    EXPECT_TRUE(MayAsk(origin, Pages::kAny)) << origin;
  }
}

}  // namespace
}  // namespace tidepool::service
