#include "service/http/response_writer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "tests/service/http/socket_pair.h"

namespace tidepool::service {
namespace {

class Owner final : public ResponseWriter::Owner {
 public:
  explicit Owner(SocketPair* pair) : writer(pair->socket(), pair->deadline(), absl::Hours(1)) {}

  void OnSent() override { ++sent; }
  void OnDisconnect() override { disconnected = true; }

  ResponseWriter writer;
  int sent = 0;
  bool disconnected = false;
};

class ResponseWriterTest : public testing::Test {
 protected:
  void RunUntilSent() {
    pair_.RunUntil([this, before = owner_->sent] { return owner_->sent > before; });
  }
  // Returns the bytes after the header of the response.
  std::string BodyUntil(const std::string& end) {
    pair_.ReceiveUntil("\r\n\r\n");
    return pair_.ReceiveUntil(end);
  }

  SocketPair pair_;
  std::shared_ptr<Owner> owner_ = std::make_shared<Owner>(&pair_);
  ResponseWriter& writer_ = owner_->writer;
};

TEST_F(ResponseWriterTest, SendsCompleteResponses) {
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  for (int i = 1; i <= 2; ++i) {
    writer_.Begin({.keep_alive = true});
    writer_.Answer({.body = "body", .held = std::move(held)}, owner_);
    RunUntilSent();
    EXPECT_EQ(owner_->sent, i);
    EXPECT_EQ(BodyUntil("body"), "body");
    EXPECT_TRUE(watched.expired());
  }
}

TEST_F(ResponseWriterTest, SendsNoBodyForHead) {
  writer_.Begin({.head_only = true, .keep_alive = true});
  writer_.Answer({.body = "body"}, owner_);
  RunUntilSent();
  EXPECT_TRUE(absl::StrContains(pair_.ReceiveUntil("\r\n\r\n"), "Content-Length: 4"));
  writer_.Begin({.keep_alive = true});
  writer_.Answer({.status = 204}, owner_);
  RunUntilSent();
  const std::string second = pair_.ReceiveUntil("\r\n\r\n");
  EXPECT_TRUE(absl::StartsWith(second, "HTTP/1.1 204 ")) << "nothing was between";
  EXPECT_FALSE(absl::StrContains(second, "Content-Length"));
}

TEST_F(ResponseWriterTest, SendsAStreamInChunks) {
  writer_.Begin({.keep_alive = true});
  writer_.BeginStream({}, owner_);
  int taken = 0;
  // Both pieces are collected while the header is being sent.
  writer_.Write(
      "abc", [&taken] { ++taken; }, owner_);
  writer_.Write(
      "d", [&taken] { ++taken; }, owner_);
  EXPECT_EQ(taken, 0);
  pair_.RunUntil([&] { return taken == 2; });
  EXPECT_EQ(owner_->sent, 0);
  writer_.EndStream(owner_);
  RunUntilSent();
  EXPECT_EQ(BodyUntil("0\r\n\r\n"), "3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n");
  EXPECT_TRUE(writer_.keep_alive());
}

TEST_F(ResponseWriterTest, EndsAStreamOfHttp10WithTheConnection) {
  writer_.Begin({.http_1_0 = true, .keep_alive = true});
  writer_.BeginStream({}, owner_);
  writer_.Write("abc", nullptr, owner_);
  writer_.EndStream(owner_);
  RunUntilSent();
  EXPECT_FALSE(writer_.keep_alive());
  EXPECT_EQ(BodyUntil("abc"), "abc");
}

TEST_F(ResponseWriterTest, MayEndTheStreamWhenAWriteWasTaken) {
  writer_.Begin({.http_1_0 = true});
  writer_.BeginStream({}, owner_);
  writer_.Write(
      "abc", [this] { writer_.EndStream(owner_); }, owner_);
  RunUntilSent();
  EXPECT_EQ(owner_->sent, 1);
}

TEST_F(ResponseWriterTest, ClosesAfterTheLastResponse) {
  writer_.Begin({.keep_alive = true});
  writer_.CloseAfter();
  writer_.Answer({}, owner_);
  RunUntilSent();
  EXPECT_TRUE(absl::StrContains(pair_.ReceiveUntil("\r\n\r\n"), "Connection: close"));
}

TEST_F(ResponseWriterTest, ReportsADisconnect) {
  writer_.Begin({.keep_alive = true});
  writer_.BeginStream({}, owner_);
  pair_.CloseClient();
  bool taken = true;
  while (!owner_->disconnected) {
    if (std::exchange(taken, false))
      writer_.Write(
          "abc", [&taken] { taken = true; }, owner_);
    pair_.RunUntil([&] { return taken || owner_->disconnected; });
  }
  EXPECT_EQ(owner_->sent, 0);
}

TEST_F(ResponseWriterTest, CallsNoCallbackAfterStop) {
  writer_.Begin({.keep_alive = true});
  writer_.BeginStream({}, owner_);
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  writer_.Write(
      "abc", [held = std::move(held)] { FAIL() << "the write was dropped"; }, owner_);
  writer_.Stop();
  EXPECT_TRUE(watched.expired());
  pair_.socket()->Close();
  const std::weak_ptr<Owner> owner = owner_;
  owner_.reset();
  pair_.deadline()->Clear();
  pair_.RunUntil([&] { return owner.expired(); });
}

}  // namespace
}  // namespace tidepool::service
