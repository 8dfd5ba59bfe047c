// HTTP/1.1 on real sockets, with a handler that the test controls.
#include "service/http/http_server.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/base/mutex.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/http/raw_client.h"

namespace tidepool::service {
namespace {

// Responds with the contents of the request. For /held, the test responds. Thread-safe.
class EchoHandler final : public HttpHandler {
 public:
  HttpHeaders CommonHeaders(const HttpHead& head) override { return {{"X-Host", head.host}}; }
  std::optional<HttpResponse> CheckHead(const HttpHead& head) override {
    if (head.path != "/refused") return std::nullopt;
    HttpResponse response;
    response.status = 404;
    response.body = "no";
    return response;
  }
  void Handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    if (request.head.path == "/held") {
      exchange->OnGone([this] { gone_.set_value(); });
      base::MutexLock lock(&mutex_);
      held_ = std::move(exchange);
      changed_.NotifyAll();
      return;
    }
    HttpResponse response;
    response.content_type = "text/plain";
    response.body = absl::StrCat(request.head.method, " ", request.head.path, " ", request.body);
    exchange->Answer(std::move(response));
  }

  std::shared_ptr<HttpExchange> TakeHeld() {
    base::MutexLock lock(&mutex_);
    while (held_ == nullptr) changed_.Wait(&mutex_);
    return std::exchange(held_, nullptr);
  }
  void WaitGone() { gone_.get_future().wait(); }

 private:
  base::Mutex mutex_;
  base::CondVar changed_;
  std::shared_ptr<HttpExchange> held_ TIDEPOOL_GUARDED_BY(mutex_);
  std::promise<void> gone_;
};

class HttpServerTest : public testing::Test {
 protected:
  void Start(const HttpLimits& limits = {}) {
    auto server =
        HttpServer::Start(&handler_, {.listen = "127.0.0.1:0", .limits = limits, .clock = &clock_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::unique_ptr<RawClient> Connect() { return std::make_unique<RawClient>(server_->port()); }
  // Returns the response to these bytes.
  std::string Told(const std::string& bytes) {
    const auto client = Connect();
    client->Send(bytes);
    return client->ReadToEnd();
  }

  fakes::ManualClock clock_;
  EchoHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, OneConnectionManyRequests) {
  Start();
  const auto client = Connect();
  EXPECT_EQ(client->Get("/a%20b?query=1").body, "GET /a b ");
  EXPECT_EQ(client->Post("/c", "body").body, "POST /c body");
  client->Send(
      "POST /d HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
      "3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(client->ReadResponse().body, "POST /d abcde");
  client->Send("HEAD /e HTTP/1.1\r\nHost: h\r\n\r\n");
  const RawResponse head = client->ReadResponse(/*has_body=*/false);
  EXPECT_TRUE(absl::StrContains(head.head, "Content-Length: 8\r\n")) << head.head;
  EXPECT_EQ(client->Get("/f").body, "GET /f ");
  EXPECT_EQ(client->Get("http://h:1/g?x").body, "GET /g ");
  EXPECT_EQ(server_->connections(), 1);
}

TEST_F(HttpServerTest, EveryResponseHasTheHandlersHeaders) {
  Start();
  const std::string request = "GET /refused HTTP/1.1\r\nHost: a:1\r\n\r\n";
  EXPECT_TRUE(absl::StrContains(Connect()->Get("/").head, "\r\nX-Host: localhost\r\n"));
  EXPECT_TRUE(absl::StrContains(Connect()->Get("http://t:2/?x").head, "\r\nX-Host: t:2\r\n"));
  const auto client = Connect();
  client->Send(request);
  EXPECT_TRUE(absl::StrContains(client->ReadResponse().head, "\r\nX-Host: a:1\r\n"));
  EXPECT_TRUE(
      absl::StrContains(Told("POST / HTTP/1.1\r\nHost: b\r\nContent-Length: 99999999999\r\n\r\n"),
                        "\r\nX-Host: b\r\n"));
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Start();
  const auto client = Connect();
  std::string all;
  for (int i = 0; i < 50; ++i) {
    absl::StrAppend(&all, "POST /", i, " HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxy");
  }
  client->Send(all);
  for (int i = 0; i < 50; ++i) {
    EXPECT_EQ(client->ReadResponse().body, absl::StrCat("POST /", i, " xy"));
  }
}

TEST_F(HttpServerTest, AResponseIsReleasedWhenItIsSent) {
  Start();
  constexpr size_t kBytes = size_t{32} << 20;  // more than the socket buffers hold
  const auto client = Connect();
  client->Send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
  const std::shared_ptr<HttpExchange> exchange = handler_.TakeHeld();
  std::promise<void> sent;
  std::future<void> is_sent = sent.get_future();
  std::promise<void> begun;
  exchange->Post([&] {
    HttpResponse response;
    response.body = std::string(kBytes, 'x');
    response.held = std::shared_ptr<const void>(&sent, [&sent](const void*) { sent.set_value(); });
    exchange->Answer(std::move(response));
    exchange->Post([&begun] { begun.set_value(); });
  });
  begun.get_future().wait();
  EXPECT_EQ(is_sent.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(client->ReadResponse().body.size(), kBytes);
  is_sent.wait();
}

TEST_F(HttpServerTest, ExpectContinue) {
  Start();
  const auto client = Connect();
  client->Send("POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client->ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client->Send("ab");
  EXPECT_EQ(client->ReadResponse().body, "POST /x ab");
  // If the request is refused early, the client does not have to send the body.
  client->Send(
      "POST /refused HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client->ReadResponse().status, 404);
  EXPECT_FALSE(client->ReadMore()) << "the connection must close: its body was not read";
}

TEST_F(HttpServerTest, Http10ClosesUnlessAsked) {
  Start();
  const std::string told = Told("GET /x HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(absl::StrContains(told, "Connection: close")) << told;
  EXPECT_TRUE(absl::EndsWith(told, "GET /x ")) << told;
  const auto client = Connect();
  client->Send("GET /y HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_EQ(client->ReadResponse().body, "GET /y ");
  client->Send("GET /z HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client->ReadResponse().body, "GET /z ");
}

TEST_F(HttpServerTest, InvalidRequestsAreRefused) {
  HttpLimits limits;
  limits.max_header_bytes = 1000;
  limits.max_body_bytes = 100;
  Start(limits);
  const std::string post = "POST /x HTTP/1.1\r\nHost: h\r\n";
  const std::pair<std::string, int> table[] = {
      {"\x16\x03\x01 a TLS hello \r\n\r\n", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nbroken\r\n\r\n", 400},
      {"GET ftp://elsewhere/ HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(2000, 'x') + "\r\n\r\n", 431},
      {std::string(5000, 'G'), 431},
      {post + "Content-Length: 101\r\n\r\n", 413},
      {post + "Content-Length: 99999999999999999999\r\n\r\n", 400},
      {post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {post + "Transfer-Encoding: gzip\r\n\r\n", 501},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
      {post + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501},
      {post + "X-Api-Key: a\r\nX-Api-Key: b\r\n\r\n", 400},
      {post + "Idempotency-Key: a\r\nIdempotency-Key: b\r\n\r\n", 400},
      {post + "X-Request-Id: a\r\nX-Request-Id: b\r\n\r\n", 400},
      {post + "Last-Event-ID: 1\r\nLast-Event-ID: 2\r\n\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
      {post + "Transfer-Encoding: chunked\r\n\r\n80\r\n" + std::string(128, 'x'), 413},
      {post + "Expect: miracles\r\nContent-Length: 1\r\n\r\nx", 417},
  };
  for (const auto& [bytes, status] : table) {
    const std::string told = Told(bytes);
    EXPECT_TRUE(absl::StartsWith(told, absl::StrCat("HTTP/1.1 ", status, " "))) << bytes << told;
    EXPECT_TRUE(absl::StrContains(told, "\"error\"")) << told;
    EXPECT_TRUE(absl::StrContains(told, "Connection: close")) << told;
  }
  const auto quiet = Connect();
  quiet->Send("POST /x HT");
  quiet->EndSending();
  // the client has sent half a request and has closed the connection
  EXPECT_EQ(quiet->ReadToEnd(), "");
}

TEST_F(HttpServerTest, EmptyLinesBeforeARequestAreSkipped) {
  Start();
  const auto client = Connect();
  client->Send("\r\nGET /a HTTP/1.1\r\nHost: h\r\n\r\n");
  EXPECT_EQ(client->ReadResponse().body, "GET /a ");
  // Some old clients send a line break after a body. The second request is pipelined.
  client->Send(
      "POST /b HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\r\n\r\n"
      "GET /c HTTP/1.1\r\nHost: h\r\n\r\n\r\n");
  EXPECT_EQ(client->ReadResponse().body, "POST /b x");
  EXPECT_EQ(client->ReadResponse().body, "GET /c ");
  for (const char byte : std::string("\r\nGET /d HTTP/1.1\r\nHost: h\r\n\r\n")) {
    client->Send(std::string(1, byte));
  }
  EXPECT_EQ(client->ReadResponse().body, "GET /d ");
  EXPECT_TRUE(absl::StartsWith(Told("\rGET / HTTP/1.1\r\nHost: h\r\n\r\n"), "HTTP/1.1 400 "));
}

// A connection on which only an empty line was sent is idle. So no request times out.
TEST_F(HttpServerTest, AnEmptyLineAloneIsNotARequest) {
  HttpLimits limits;
  limits.idle_timeout = absl::Milliseconds(20);
  Start(limits);
  EXPECT_EQ(Told("\r\n"), "");
}

TEST_F(HttpServerTest, SlowRequestsEnd) {
  HttpLimits limits;
  limits.header_timeout = limits.body_timeout = limits.idle_timeout = absl::Milliseconds(20);
  Start(limits);
  EXPECT_TRUE(absl::StartsWith(Told("GET / HTT"), "HTTP/1.1 408 "));
  EXPECT_TRUE(absl::StartsWith(Told("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nab"),
                               "HTTP/1.1 408 "));
  EXPECT_EQ(Told(""), "");
}

TEST_F(HttpServerTest, BodiesShareABudget) {
  HttpLimits limits;
  limits.max_open_body_bytes = 10;
  limits.small_body_bytes = 0;
  Start(limits);
  const auto client = Connect();
  EXPECT_EQ(client->Post("/x", "0123456789").status, 200);
  // the bytes of the first request are no longer counted
  EXPECT_EQ(client->Post("/x", "0123456789").status, 200);
  EXPECT_EQ(client->Post("/x", "0123456789a").status, 503);
}

TEST_F(HttpServerTest, ShortBodiesHaveRoomWhateverOthersSend) {
  HttpLimits limits;
  limits.max_open_body_bytes = 0;
  limits.small_body_bytes = 100;
  Start(limits);
  EXPECT_EQ(Connect()->Post("/x", std::string(100, 'y')).status, 200);
  EXPECT_EQ(Connect()->Post("/x", std::string(101, 'y')).status, 503);
}

TEST_F(HttpServerTest, ConnectionsAreCounted) {
  HttpLimits limits;
  limits.max_connections = 2;
  Start(limits);
  const auto first = Connect(), second = Connect();
  EXPECT_EQ(first->Get("/").status, 200);
  EXPECT_EQ(second->Get("/").status, 200);
  const RawResponse third = Connect()->ReadResponse();
  EXPECT_EQ(third.status, 503);
  EXPECT_TRUE(absl::StrContains(third.body, "too many connections"));
  first->Close();
  while (server_->connections() > 1) std::this_thread::yield();
  EXPECT_EQ(Connect()->Get("/").status, 200);
}

TEST_F(HttpServerTest, AStreamIsWrittenPieceByPiece) {
  Start();
  const auto client = Connect();
  client->Send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = handler_.TakeHeld();
  std::promise<void> taken;
  exchange->Post([&] {
    exchange->BeginStream({.content_type = "text/event-stream"});
    exchange->Write("data: 1\n\n", [&] { taken.set_value(); });
  });
  EXPECT_TRUE(absl::StrContains(client->ReadUntil("data: 1\n\n"), "Transfer-Encoding: chunked"));
  taken.get_future().wait();
  exchange->Post([&] {
    exchange->Write("data: 2\n\n", nullptr);
    exchange->EndStream();
  });
  EXPECT_EQ(client->ReadUntil("0\r\n\r\n"), "\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n");
  EXPECT_EQ(client->Get("/next").body, "GET /next ");
}

TEST_F(HttpServerTest, AClientThatLeavesIsNoticed) {
  Start();
  const auto client = Connect();
  client->Send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = handler_.TakeHeld();
  client->Close();
  handler_.WaitGone();
}

TEST_F(HttpServerTest, AReaderThatStopsHoldsTheStreamBack) {
  Start();
  const auto client = Connect();
  client->Send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = handler_.TakeHeld();
  // Like a generation, writes each piece when the previous one was taken.
  constexpr int kPieces = 400;
  const std::string piece(64 << 10, 'x');
  std::atomic<int> taken = 0;
  std::function<void()> next = [&] {
    if (++taken < kPieces) {
      exchange->Write(piece, next);
    } else {
      exchange->EndStream();
    }
  };
  exchange->Post([&] {
    exchange->BeginStream({.content_type = "text/plain"});
    exchange->Write(piece, next);
  });
  // The sockets' buffers hold some pieces, and the server buffers no more. A response on another
  // connection shows that the server does not wait.
  EXPECT_EQ(Connect()->Get("/other").body, "GET /other ");
  EXPECT_LT(taken, kPieces);
  const RawResponse response = client->ReadResponse();
  EXPECT_EQ(response.body.size(), kPieces * piece.size());
}

constexpr absl::Duration kAge = absl::Hours(1);

TEST_F(HttpServerTest, AResponsePastTheAgeIsTheLast) {
  Start({.max_connection_age = kAge});
  const auto client = Connect();
  EXPECT_FALSE(absl::StrContains(client->Get("/").head, "Connection: close"));
  client->Send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = handler_.TakeHeld();
  clock_.Advance(kAge);
  exchange->Post([&] { exchange->Answer({.content_type = "", .body = "late"}); });
  const RawResponse last = client->ReadResponse();
  EXPECT_EQ(last.body, "late");
  EXPECT_TRUE(absl::StrContains(last.head, "Connection: close")) << last.head;
  EXPECT_FALSE(client->ReadMore());
}

TEST_F(HttpServerTest, AStreamThatEndsPastTheAgeIsTheLastResponseToo) {
  Start({.max_connection_age = kAge});
  const auto client = Connect();
  client->Send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = handler_.TakeHeld();
  exchange->Post([&] {
    exchange->BeginStream({.content_type = "text/event-stream"});
    exchange->Write("data: 1\n\n", nullptr);
  });
  EXPECT_FALSE(absl::StrContains(client->ReadUntil("data: 1\n\n"), "Connection: close"));
  clock_.Advance(kAge);
  client->Send("GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
  exchange->Post([&] { exchange->EndStream(); });
  EXPECT_EQ(client->ReadUntil("GET /next "), "\r\n0\r\n\r\n");
}

// The age ends long before the idle timeout.
TEST_F(HttpServerTest, AnIdleConnectionEndsAtItsAge) {
  Start({.idle_timeout = absl::Hours(1), .max_connection_age = kAge});
  const auto client = Connect();
  EXPECT_EQ(client->Get("/").status, 200);
  client->Send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = handler_.TakeHeld();
  clock_.Advance(kAge - absl::Milliseconds(20));
  exchange->Post([&] { exchange->Answer({}); });
  EXPECT_FALSE(absl::StrContains(client->ReadResponse().head, "Connection: close"));
  EXPECT_FALSE(client->ReadMore());
}

TEST_F(HttpServerTest, ShutdownSendsPendingResponses) {
  Start();
  const auto idle = Connect();
  EXPECT_EQ(idle->Get("/").status, 200);
  const auto client = Connect();
  client->Send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = handler_.TakeHeld();
  std::thread stopping([&] { server_->Shutdown(absl::Seconds(60)); });
  EXPECT_FALSE(idle->ReadMore());  // it was closed at once
  exchange->Post([&] { exchange->Answer({.content_type = "", .body = "late"}); });
  EXPECT_EQ(client->ReadResponse().body, "late");
  EXPECT_FALSE(client->ReadMore());
  stopping.join();
  EXPECT_EQ(server_->connections(), 0);
}

TEST_F(HttpServerTest, ShutdownDoesNotWaitForever) {
  Start();
  const auto client = Connect();
  client->Send("GET /held HTTP/1.1\r\nHost: h\r\n\r\n");
  const auto exchange = handler_.TakeHeld();
  server_->Shutdown(absl::Milliseconds(1));
  EXPECT_EQ(client->ReadToEnd(), "");
  exchange->Post([] {});  // this task never runs, so it uses no destroyed object
}

TEST_F(HttpServerTest, AddressesThatAreTakenAreNamed) {
  Start();
  const auto second = HttpServer::Start(&handler_, {.listen = server_->address()});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(second.status().message(), server_->address())) << second.status();
  EXPECT_TRUE(absl::StrContains(second.status().message(), "--http")) << second.status();
  EXPECT_EQ(HttpServer::Start(&handler_, {.listen = "nonsense"}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(HttpServerTest, IdleConnectionsAreCheap) {
  Start();
  std::vector<std::unique_ptr<RawClient>> idle;
  for (int i = 0; i < 400; ++i) idle.push_back(Connect());
  EXPECT_EQ(Connect()->Get("/").status, 200);
  EXPECT_EQ(idle.back()->Get("/x").body, "GET /x ");
}

}  // namespace
}  // namespace tidepool::service
