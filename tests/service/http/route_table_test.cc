#include "service/http/route_table.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace tidepool::service {
namespace {

RouteTable Table() {
  return RouteTable({{{.path = "/v1/things", .method = "GET"}, nullptr},
                     {{.path = "/v1/things/", .method = "GET"}, nullptr},
                     {{.path = "/v1/make", .method = "POST"}, nullptr}});
}

std::string Found(const std::string& path) { return Table().LabelOf(path); }

std::string HeaderOf(const HttpResponse& response, const std::string& name) {
  for (const auto& [key, value] : response.headers) {
    if (key == name) return value;
  }
  return "";
}

constexpr ApiPath kGet = {.path = "/v1/things", .method = "GET"};
constexpr ApiPath kPost = {.path = "/v1/make", .method = "POST"};

TEST(RouteTableTest, FindsPathsWithASlashAtTheEnd) {
  EXPECT_EQ(Found("/v1/make"), "/v1/make");
  EXPECT_EQ(Found("/v1/make/"), "/v1/make");
  EXPECT_EQ(Found("/v1/things"), "/v1/things");
}

TEST(RouteTableTest, FindsPathsBelowAPrefix) {
  EXPECT_EQ(Found("/v1/things/a"), "/v1/things/");
  EXPECT_EQ(Found("/v1/things/a/b"), "/v1/things/");
}

TEST(RouteTableTest, DoesNotFindOtherPaths) {
  EXPECT_EQ(Table().Find("/v1/make/more"), nullptr);
  EXPECT_EQ(Table().Find("/v1"), nullptr);
  EXPECT_EQ(Table().Find(""), nullptr);
  EXPECT_EQ(Found("/V1/MAKE"), "other");
}

TEST(RouteTableTest, ListsTheKnownPathsInOrder) {
  const HttpResponse response = Table().UnknownPath("/v2");
  EXPECT_EQ(response.status, 404);
  EXPECT_TRUE(absl::StrContains(response.body, "/v1/things, /v1/things/, /v1/make"))
      << response.body;
  const std::vector<ApiPath> paths = Table().Paths();
  ASSERT_EQ(paths.size(), 3U);
  EXPECT_STREQ(paths[2].path, "/v1/make");
}

TEST(RouteTableTest, AllowsHeadForGet) {
  EXPECT_FALSE(CheckMethod(kGet, {.method = "GET"}).has_value());
  EXPECT_FALSE(CheckMethod(kGet, {.method = "HEAD"}).has_value());
  EXPECT_FALSE(CheckMethod(kGet, {.method = "OPTIONS"}).has_value());
  EXPECT_FALSE(CheckMethod(kPost, {.method = "POST"}).has_value());
  EXPECT_EQ(AllowOf(kGet), "GET, HEAD, OPTIONS");
  EXPECT_EQ(AllowOf(kPost), "POST, OPTIONS");
}

TEST(RouteTableTest, RefusesOtherMethods) {
  for (const char* method : {"GET", "HEAD", "PUT", "post"}) {
    const std::optional<HttpResponse> refusal = CheckMethod(kPost, {.method = method});
    ASSERT_TRUE(refusal.has_value()) << method;
    EXPECT_EQ(refusal->status, 405);
    EXPECT_EQ(HeaderOf(*refusal, "Allow"), "POST, OPTIONS");
  }
}

TEST(RouteTableTest, RequiresJsonBodies) {
  const auto status = [](const ApiPath& api, const std::string& type, const std::string& coding) {
    const auto refusal = CheckContentType(api, {.content_type = type, .content_encoding = coding});
    return refusal.has_value() ? refusal->status : 200;
  };
  EXPECT_EQ(status(kPost, "application/json", ""), 200);
  EXPECT_EQ(status(kPost, "Application/JSON ; charset=utf-8", "Identity"), 200);
  EXPECT_EQ(status(kPost, "text/plain", ""), 415);
  EXPECT_EQ(status(kPost, "", ""), 415);
  EXPECT_EQ(status(kPost, "application/json", "gzip"), 415);
  EXPECT_EQ(status(kGet, "text/plain", "gzip"), 200) << "a GET has no body";
}

}  // namespace
}  // namespace tidepool::service
