// Requests of browsers, of proxies, and of clients for other servers, over real sockets.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "service/cli/log.h"
#include "service/http/json.h"
#include "tests/service/http/http_fixture.h"

namespace tidepool::service {
namespace {

constexpr char kBody[] = R"({"prompt":"Hello","max_tokens":2})";

class HttpWebTest : public HttpFixture {
 protected:
  // `lines` are the headers, each with its line break.
  RawResponse Ask(const std::string& target, const std::string& lines) {
    const auto client = Connect();
    client->Send(absl::StrCat(target, " HTTP/1.1\r\n", lines, "\r\n"));
    return client->ReadResponse();
  }
  RawResponse PostPrompt(const std::string& lines, const std::string& body = kBody) {
    const auto client = Connect();
    client->Send(absl::StrCat("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n", lines,
                              "Content-Type: application/json\r\nContent-Length: ", body.size(),
                              "\r\n\r\n", body));
    return client->ReadResponse();
  }
  static bool Has(const RawResponse& response, const std::string& header) {
    return absl::StrContains(response.head, absl::StrCat("\r\n", header, "\r\n"));
  }
};

TEST_F(HttpWebTest, ReboundHostNamesReadNothing) {
  web_.hosts.names = {"llm.example"};
  Start();
  for (const char* path : {"/metrics", "/v1/models", "/healthz", "/readyz", "/nothing"}) {
    const RawResponse refused = Ask(absl::StrCat("GET ", path), "Host: evil.example:8080\r\n");
    EXPECT_EQ(refused.status, 403) << path;
    EXPECT_TRUE(absl::StrContains(refused.body, "--http-host NAME")) << refused.body;
  }
  EXPECT_EQ(Ask("GET http://evil.example/metrics", "Host: localhost\r\n").status, 403);
  for (const char* host :
       {"localhost:1", "127.0.0.1", "[::1]:8080", "app.localhost", "llm.example"}) {
    EXPECT_EQ(Ask("GET /metrics", absl::StrCat("Host: ", host, "\r\n")).status, 200) << host;
  }
}

TEST_F(HttpWebTest, AnyHostIsServedWhereAnyPageMayAsk) {
  web_.pages = Pages::kAny;
  Start();
  EXPECT_EQ(Ask("GET /v1/models", "Host: any.example\r\n").status, 200);
}

// For example, probes in a cluster use the address of a pod as the host.
TEST_F(HttpWebTest, AnyHostIsServedPastThisMachine) {
  http_ = "0.0.0.0:0";
  Start();
  EXPECT_EQ(Ask("GET /readyz", "Host: 10.1.2.3:8080\r\n").status, 200);
  EXPECT_EQ(Ask("GET /metrics", "Host: tidepool.svc\r\n").status, 200);
}

TEST_F(HttpWebTest, AllowedPagesMayCallAndRead) {
  ASSERT_TRUE(web_.cors.Add("https://chat.example").ok());
  Start();
  const std::string origin = "Origin: https://chat.example\r\n";
  const std::string allowed = "Access-Control-Allow-Origin: https://chat.example";
  const RawResponse preflight =
      Ask("OPTIONS /v1/chat/completions",
          absl::StrCat("Host: localhost\r\n", origin, "Access-Control-Request-Method: POST\r\n",
                       "Access-Control-Request-Headers: authorization,content-type,x-my\r\n"));
  EXPECT_EQ(preflight.status, 204);
  EXPECT_TRUE(Has(preflight, allowed)) << preflight.head;
  EXPECT_TRUE(Has(preflight, "Access-Control-Allow-Methods: POST, OPTIONS")) << preflight.head;
  EXPECT_TRUE(Has(preflight, "Vary: Origin")) << preflight.head;
  EXPECT_TRUE(absl::StrContains(preflight.head, "Allow-Headers: Authorization, "))
      << preflight.head;
  EXPECT_TRUE(absl::StrContains(preflight.head, ", x-my\r\n")) << preflight.head;

  const std::pair<RawResponse, int> responses[] = {
      {PostPrompt(origin), 200},
      {PostPrompt(origin, R"({"prompt":"Hello","max_tokens":2,"stream":true})"), 200},
      {PostPrompt(origin, "{"), 400},
      {Ask("GET /nothing", absl::StrCat("Host: localhost\r\n", origin)), 404},
      {Ask("GET /v1/models", absl::StrCat("Host: evil.example\r\n", origin)), 403},
      {Ask("POST /v1/completions",
           absl::StrCat("Host: localhost\r\n", origin, "Content-Length: 99999999999\r\n")),
       413}};
  for (const auto& [response, status] : responses) {
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_TRUE(Has(response, allowed)) << response.head;
    EXPECT_TRUE(absl::StrContains(response.head, "Access-Control-Expose-Headers: X-Request-Id"));
  }
}

TEST_F(HttpWebTest, OtherPagesMayNot) {
  ASSERT_TRUE(web_.cors.Add("https://chat.example").ok());
  Start();
  const RawResponse preflight = Ask("OPTIONS /v1/completions",
                                    "Host: localhost\r\nOrigin: https://evil.example\r\n"
                                    "Access-Control-Request-Method: POST\r\n");
  EXPECT_FALSE(absl::StrContains(preflight.head, "Access-Control")) << preflight.head;
  EXPECT_TRUE(Has(preflight, "Vary: Origin")) << preflight.head;
  const RawResponse refused = PostPrompt("Origin: https://evil.example\r\n");
  EXPECT_EQ(refused.status, 403);
  EXPECT_FALSE(absl::StrContains(refused.head, "Access-Control")) << refused.head;
  EXPECT_TRUE(absl::StrContains(refused.body, "--cors-origin")) << refused.body;
}

TEST_F(HttpWebTest, EncodedBodiesAreRefused) {
  Start();
  const RawResponse refused = PostPrompt("Content-Encoding: gzip\r\n", "\x1f\x8b\x08");
  EXPECT_EQ(refused.status, 415);
  EXPECT_TRUE(absl::StrContains(refused.body, "Content-Encoding is 'gzip'")) << refused.body;
  EXPECT_TRUE(Has(refused, "Accept-Encoding: identity")) << refused.head;
  EXPECT_EQ(PostPrompt("Content-Encoding: identity\r\n").status, 200);
}

TEST_F(HttpWebTest, RefusalsLeaveALineAndACount) {
  base::Mutex mutex;
  std::vector<std::string> lines;
  log_ = [&](LogLevel, absl::string_view line, LogFields fields) {
    if (line != "http request refused") return;
    base::MutexLock lock(&mutex);
    lines.push_back(LogText(line, fields));
  };
  Start();
  EXPECT_EQ(PostPrompt("", R"({"prompt":"a secret","max_tokens":-1})").status, 400);
  EXPECT_EQ(PostPrompt("", "{").status, 400);
  EXPECT_EQ(Connect()->Get("/no/such").status, 404);
  EXPECT_EQ(Ask("GET /metrics", "Host: evil.example\r\n").status, 403);
  const auto garbage = Connect();
  garbage->Send("nonsense\r\n\r\n");
  EXPECT_EQ(garbage->ReadResponse().status, 400);
  // A generation that failed is logged by RequestLog, not by HttpLog.
  EXPECT_EQ(PostPrompt("", R"({"prompt":"x","model":"other"})").status, 404);
  EXPECT_EQ(PostPrompt("").status, 200);
  {
    base::MutexLock lock(&mutex);
    EXPECT_EQ(lines, (std::vector<std::string>{
                         absl::StrCat("http request refused status=400 method=POST ",
                                      "path=/v1/completions param=max_tokens"),
                         "http request refused status=400 method=POST path=/v1/completions",
                         "http request refused status=404 method=GET path=/no/such code=not_found",
                         "http request refused status=403 method=GET path=/metrics",
                         "http request refused status=400 code=bad_request"}));
  }
  const std::string page = Connect()->Get("/metrics").body;
  for (const char* line :
       {"tidepool:http_requests_total{handler=\"/v1/completions\",status=\"200\"} 1\n",
        "tidepool:http_requests_total{handler=\"/v1/completions\",status=\"400\"} 2\n",
        "tidepool:http_requests_total{handler=\"/v1/completions\",status=\"404\"} 1\n",
        "tidepool:http_requests_total{handler=\"/metrics\",status=\"403\"} 1\n",
        "tidepool:http_requests_total{handler=\"other\",status=\"400\"} 1\n",
        "tidepool:http_requests_total{handler=\"other\",status=\"404\"} 1\n"}) {
    EXPECT_TRUE(absl::StrContains(page, line)) << line << page;
  }
}

TEST_F(HttpWebTest, AnAddressMayEndWithASlash) {
  Start();
  const RawResponse models = Connect()->Get("/v1/models/");
  EXPECT_EQ(models.status, 200);
  EXPECT_TRUE(absl::StrContains(models.body, R"("object":"list")")) << models.body;
  EXPECT_EQ(Connect()->Get("/healthz/").status, 200);
  EXPECT_EQ(Connect()->Get("//").status, 404);
}

TEST_F(HttpWebTest, AliasesAreModels) {
  Start({.aliases = {"gpt-4o", "org/small"}});
  const Json models = *ParseJsonBody(Connect()->Get("/v1/models").body);
  ASSERT_EQ(models["data"].size(), 2);
  EXPECT_EQ(models["data"][0]["id"], "gpt-4o");
  EXPECT_EQ(models["data"][1]["id"], "org/small");
  EXPECT_EQ(models["data"][1]["root"], "scripted");
  EXPECT_EQ((*ParseJsonBody(Connect()->Get("/v1/models/org/small").body))["id"], "org/small");
  const auto answered = [&](const std::string& model) {
    const RawResponse response =
        PostPrompt("", absl::StrCat(R"({"prompt":"Hello","max_tokens":2)", model, "}"));
    EXPECT_EQ(response.status, 200) << response.body;
    return (*ParseJsonBody(response.body))["model"].get<std::string>();
  };
  EXPECT_EQ(answered(""), "gpt-4o");
  EXPECT_EQ(answered(R"(,"model":"org/small")"), "org/small");
  EXPECT_EQ(answered(R"(,"model":"scripted")"), "scripted");
  const RawResponse unknown = PostPrompt("", R"({"prompt":"Hello","model":"gpt-5"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_TRUE(absl::StrContains(unknown.body, "served: gpt-4o, org/small, scripted"))
      << unknown.body;
}

TEST_F(HttpWebTest, TheOverflowErrorIsKnownToClients) {
  Start({.context = 64});
  for (const size_t bytes : {size_t{70}, size_t{100000}}) {
    const RawResponse response =
        PostPrompt("", absl::StrCat(R"({"prompt":")", std::string(bytes, 'x'), "\"}"));
    EXPECT_EQ(response.status, 400);
    EXPECT_TRUE(
        absl::StrContains(response.body, "this model's maximum context length is 64 tokens"))
        << response.body;
  }
}

}  // namespace
}  // namespace tidepool::service
