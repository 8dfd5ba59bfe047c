#include "service/http/cors.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/match.h"

namespace tidepool::service {
namespace {

CorsOrigins Origins(const std::vector<std::string>& patterns) {
  CorsOrigins origins;
  for (const std::string& pattern : patterns) {
    EXPECT_TRUE(origins.Add(pattern).ok()) << origins.Add(pattern);
  }
  return origins;
}

TEST(CorsOriginsTest, PatternsMatch) {
  const struct {
    const char* pattern;
    const char* origin;
    bool allowed;
  } table[] = {
      {"https://chat.example", "https://chat.example", true},
      {"https://Chat.example:443", "https://chat.example", true},
      {"https://chat.example", "https://chat.example:443", true},
      {"https://chat.example", "http://chat.example", false},
      {"https://chat.example", "https://chat.example:8443", false},
      {"https://chat.example", "https://chat.example.evil.example", false},
      {"https://chat.example", "https://a.chat.example", false},
      {"https://chat.example", "null", false},
      {"https://chat.example", "", false},
      {"http://localhost:*", "http://localhost:3000", true},
      {"http://localhost:*", "http://localhost", true},
      {"http://localhost:*", "http://localhost:*", false},
      {"http://[::1]:3000", "http://[::1]:3000", true},
      {"app://*", "app://obsidian.md", true},
      {"app://obsidian.md", "app://obsidian.md", true},
      {"app://obsidian.md", "app://other", false},
      {"tauri://localhost", "tauri://localhost", true},
      {"vscode-webview://*", "vscode-webview://0q9f3c-1", true},
      {"vscode-webview://*", "https://0q9f3c-1", false},
      {"*", "https://evil.example", true},
      {"*", "null", true},
      {"*", "", false},
  };
  for (const auto& row : table) {
    EXPECT_EQ(Origins({row.pattern}).Allows(row.origin), row.allowed)
        << row.pattern << " " << row.origin;
  }
  EXPECT_TRUE(Origins({"https://a.example", "https://b.example"}).Allows("https://b.example"));
}

TEST(CorsOriginsTest, InvalidOriginsAreRefused) {
  for (const char* pattern :
       {"", "null", "chat.example", "https://chat.example/", "https://", "https://*", "http://*:80",
        "https://a.*.example", "https://a:b", "https://a:0", "https://a:70000", "://a",
        "https://a b", "1x://a", "https://[::1", "*.example"}) {
    CorsOrigins origins;
    const absl::Status status = origins.Add(pattern);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << pattern << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "SCHEME://HOST")) << status;
    EXPECT_TRUE(origins.empty());
  }
}

std::map<std::string, std::string> Map(const HttpHeaders& headers) {
  return {headers.begin(), headers.end()};
}

TEST(CorsTest, ResponsesNameTheirOrigin) {
  const CorsOrigins origins = Origins({"https://chat.example"});
  const HttpHead of_page = {.method = "POST", .origin = "https://chat.example"};
  auto headers = Map(CorsHeaders(origins, of_page));
  EXPECT_EQ(headers["Access-Control-Allow-Origin"], "https://chat.example");
  EXPECT_EQ(headers["Vary"], "Origin");
  EXPECT_TRUE(absl::StrContains(headers["Access-Control-Expose-Headers"], "X-Request-Id"));
  headers = Map(CorsHeaders(origins, {.method = "POST", .origin = "https://evil.example"}));
  EXPECT_EQ(headers, (std::map<std::string, std::string>{{"Vary", "Origin"}}));
  EXPECT_TRUE(CorsHeaders({}, of_page).empty());
}

TEST(CorsTest, PreflightsAreAnswered) {
  const CorsOrigins origins = Origins({"https://chat.example"});
  HttpHead head = {.method = "OPTIONS",
                   .origin = "https://chat.example",
                   .request_method = "POST",
                   .request_headers = "content-type, x-stainless-os,type,bad name,x\ty"};
  EXPECT_TRUE(IsPreflight(head));
  auto headers = Map(PreflightHeaders(origins, head, "POST, OPTIONS"));
  EXPECT_EQ(headers["Access-Control-Allow-Methods"], "POST, OPTIONS");
  EXPECT_EQ(headers["Access-Control-Max-Age"], "7200");
  EXPECT_EQ(headers["Access-Control-Allow-Headers"],
            "Authorization, Content-Type, X-Api-Key, Idempotency-Key, X-Request-Id, Last-Event-ID, "
            "Traceparent, Tracestate, x-stainless-os, type");
  EXPECT_FALSE(headers.contains("Access-Control-Allow-Private-Network"));
  head.private_network = "true";
  headers = Map(PreflightHeaders(origins, head, "POST"));
  EXPECT_EQ(headers["Access-Control-Allow-Private-Network"], "true");
  head.origin = "https://evil.example";
  EXPECT_TRUE(PreflightHeaders(origins, head, "POST").empty());
  for (const HttpHead& other : {HttpHead{.method = "OPTIONS"},
                                HttpHead{.method = "OPTIONS", .origin = "https://chat.example"},
                                HttpHead{.method = "OPTIONS", .request_method = "POST"},
                                HttpHead{.method = "POST", .origin = "o", .request_method = "P"}}) {
    EXPECT_FALSE(IsPreflight(other));
  }
}

}  // namespace
}  // namespace tidepool::service
