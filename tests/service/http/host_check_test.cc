#include "service/http/host_check.h"

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace tidepool::service {
namespace {

bool IsServed(absl::string_view host, std::vector<std::string> names = {}) {
  const absl::Status status =
      CheckHost(host, {.served = HostPolicy::Served::kOfThisMachine, .names = std::move(names)});
  EXPECT_TRUE(status.ok() || absl::IsPermissionDenied(status)) << status;
  EXPECT_TRUE(status.ok() || absl::StrContains(status.message(), "--http-host NAME")) << status;
  return status.ok();
}

TEST(HostCheckTest, NamesOfThisMachineAreServed) {
  for (const char* host :
       {"", "localhost", "localhost:8080", "LocalHost:1", "localhost.", "app.localhost:80",
        "127.0.0.1", "127.0.0.1:8080", "127.9.8.7:1", "[::1]", "[::1]:8080"}) {
    EXPECT_TRUE(IsServed(host)) << host;
  }
}

TEST(HostCheckTest, OtherNamesAreRefused) {
  for (const char* host :
       {"evil.example", "evil.example:8080", "localhost.evil.example", "127.0.0.1.evil.example",
        "notlocalhost", "0.0.0.0:8080", "192.168.0.1", "[::2]:1", "[::1", "localhost@evil.example",
        "2130706433", "a b", ":8080"}) {
    EXPECT_FALSE(IsServed(host)) << host;
    EXPECT_TRUE(CheckHost(host, {}).ok()) << host;
  }
}

TEST(HostCheckTest, NamedHostsAreServed) {
  EXPECT_TRUE(IsServed("llm.example:443", {"llm.example"}));
  EXPECT_TRUE(IsServed("LLM.Example.", {"llm.example"}));
  EXPECT_FALSE(IsServed("a.llm.example", {"llm.example"}));
  EXPECT_TRUE(CheckHostName("llm.example").ok());
  for (const char* name : {"", "llm.example:443", "https://llm.example", "a/b", "a b", "*"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckHostName(name))) << name;
  }
}

}  // namespace
}  // namespace tidepool::service
