#include "service/http/request_reader.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/service/http/socket_pair.h"

namespace tidepool::service {
namespace {

class Handler final : public HttpHandler {
 public:
  HttpHeaders CommonHeaders(const HttpHead&) override { return {{"x-common", "1"}}; }
  std::optional<HttpResponse> CheckHead(const HttpHead& head) override {
    if (head.path != "/refused") return std::nullopt;
    return HttpResponse{.status = 404};
  }
  void Handle(HttpRequest, std::shared_ptr<HttpExchange>) override {}
};

class Owner final : public RequestReader::Owner {
 public:
  Owner(SocketPair* pair, const RequestReader::Server& server)
      : reader(pair->socket(), pair->deadline(), server) {}

  void OnRequest(HttpRequest got, ResponseFraming form) override {
    ++calls;
    request = std::move(got);
    framing = std::move(form);
  }
  void OnRefused(HttpResponse response, ResponseFraming form) override {
    ++calls;
    refusal = std::move(response);
    framing = std::move(form);
  }
  void OnNoRequest() override { ++calls, nothing = true; }
  void OnReadFailed() override { ++calls, failed = true; }

  RequestReader reader;
  int calls = 0;
  std::optional<HttpRequest> request;
  std::optional<HttpResponse> refusal;
  ResponseFraming framing;
  bool nothing = false;
  bool failed = false;
};

class RequestReaderTest : public testing::Test {
 protected:
  // Returns the owner, which records what the reader reports for these bytes.
  std::shared_ptr<Owner> Read(const std::string& bytes) {
    auto owner = std::make_shared<Owner>(
        &pair_,
        RequestReader::Server{.limits = &limits_, .handler = &handler_, .open_body_bytes = &open_});
    pair_.Send(bytes);
    Read(owner.get(), owner);
    return owner;
  }
  void Read(Owner* of, const std::shared_ptr<Owner>& owner) {
    const int before = of->calls;
    of->reader.Read(owner);
    pair_.RunUntil([&] { return of->calls > before; });
  }

  HttpLimits limits_;
  Handler handler_;
  std::atomic<int64_t> open_ = 0;
  SocketPair pair_;
};

TEST_F(RequestReaderTest, ReadsPipelinedRequests) {
  const auto owner = Read(
      "\r\nPOST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
      "HEAD /b HTTP/1.0\r\n\r\n");
  ASSERT_TRUE(owner->request.has_value());
  EXPECT_EQ(owner->request->head.path, "/a");
  EXPECT_EQ(owner->request->body, "abc");
  EXPECT_EQ(owner->reader.head().path, "/a");
  EXPECT_TRUE(owner->framing.keep_alive);
  EXPECT_EQ(owner->framing.common_headers, (HttpHeaders{{"x-common", "1"}}));
  EXPECT_EQ(open_, 0);
  Read(owner.get(), owner);
  EXPECT_EQ(owner->request->head.path, "/b");
  EXPECT_TRUE(owner->framing.head_only);
  EXPECT_TRUE(owner->framing.http_1_0);
  EXPECT_FALSE(owner->framing.keep_alive);
}

TEST_F(RequestReaderTest, ReportsEmptyLinesAlone) { EXPECT_TRUE(Read("\r\n\r\n")->nothing); }

TEST_F(RequestReaderTest, KeepsTheConnectionIfARefusedRequestHasNoBody) {
  const auto owner = Read("GET /refused HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(owner->refusal->status, 404);
  EXPECT_TRUE(owner->framing.keep_alive);
}

TEST_F(RequestReaderTest, ClosesTheConnectionIfARefusedRequestHasABody) {
  const auto owner = Read("POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_EQ(owner->refusal->status, 404);
  EXPECT_FALSE(owner->framing.keep_alive);
}

TEST_F(RequestReaderTest, RefusesOtherExpectations) {
  const auto owner = Read("POST /a HTTP/1.1\r\nHost: h\r\nExpect: x\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(owner->refusal->status, 417);
}

TEST_F(RequestReaderTest, AsksForTheBody) {
  auto owner = std::make_shared<Owner>(
      &pair_,
      RequestReader::Server{.limits = &limits_, .handler = &handler_, .open_body_bytes = &open_});
  pair_.Send("POST /a HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\nabc");
  Read(owner.get(), owner);
  EXPECT_EQ(pair_.ReceiveUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  EXPECT_EQ(owner->request->body, "abc");
}

TEST_F(RequestReaderTest, EnforcesTheLimits) {
  limits_.max_header_bytes = 200;
  limits_.max_body_bytes = 100;
  const std::string start = "POST /a HTTP/1.1\r\nHost: h\r\n";
  auto owner = Read(absl::StrCat(start, "Content-Length: 101\r\n\r\n"));
  EXPECT_EQ(owner->refusal->status, 413);
  EXPECT_EQ(owner->framing.common_headers.size(), 1U) << "the header was read";
  owner = Read(absl::StrCat(start, "a: ", std::string(200, 'a'), "\r\n\r\n"));
  EXPECT_EQ(owner->refusal->status, 431);
  EXPECT_TRUE(owner->framing.common_headers.empty());
  EXPECT_EQ(owner->reader.head().method, "");
}

TEST_F(RequestReaderTest, LimitsTheBodiesOfAllConnections) {
  limits_.max_open_body_bytes = 1000;
  limits_.small_body_bytes = 10;
  open_ = 995;
  auto owner =
      Read("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 20\r\n\r\n01234567890123456789");
  EXPECT_EQ(owner->refusal->status, 503);
  EXPECT_GT(open_, 995);
  owner->reader.Reset();
  EXPECT_EQ(open_, 995);
  owner = Read("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n012345678");
  EXPECT_EQ(owner->request->body, "012345678") << "small bodies always fit";
  EXPECT_EQ(open_, 995);
}

TEST_F(RequestReaderTest, RefusesOtherProtocols) {
  const auto owner = Read("\x16\x03\x01 hello\r\n\r\n");
  EXPECT_EQ(owner->refusal->status, 400);
  EXPECT_FALSE(owner->framing.keep_alive);
}

TEST_F(RequestReaderTest, RefusesARequestThatArrivesTooSlowly) {
  limits_.header_timeout = absl::Nanoseconds(1);
  EXPECT_EQ(Read("GET /a HTTP/1.1\r\n")->refusal->status, 408);
}

TEST_F(RequestReaderTest, FailsIfTheClientCloses) {
  auto owner = std::make_shared<Owner>(
      &pair_,
      RequestReader::Server{.limits = &limits_, .handler = &handler_, .open_body_bytes = &open_});
  pair_.Send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\na");
  pair_.CloseClient();
  Read(owner.get(), owner);
  EXPECT_TRUE(owner->failed);
}

}  // namespace
}  // namespace tidepool::service
