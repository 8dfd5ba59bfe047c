#include "service/http/event_stream.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "service/http/openai_response.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/base/manual_executor.h"
#include "tests/service/http/fake_exchange.h"

namespace tidepool::service {
namespace {

v1::GenerateResponse Tokens(int64_t position, int count, bool last = false) {
  v1::GenerateResponse message;
  message.set_position(static_cast<int32_t>(position));
  for (int i = 0; i < count; ++i) message.add_token_ids(i);
  if (last) message.set_finish_reason(v1::STOP);
  return message;
}

class EventStreamTest : public testing::Test {
 protected:
  ~EventStreamTest() override { exchange_->TakeAll(); }

  std::shared_ptr<EventStream> Stream(RequestKey key = {}) {
    return std::make_shared<EventStream>(exchange_, std::move(key), /*choices=*/1,
                                         HttpHeaders{{"x-request-id", "id"}});
  }
  // Returns the key of a client that has received all events up to `position`.
  static RequestKey Resumed(const std::string& position) {
    return {.id = "name", .resume = *StreamPosition::Parse(position, 1)};
  }

  std::shared_ptr<FakeExchange> exchange_ = std::make_shared<FakeExchange>();
  fakes::ManualClock clock_;
  ManualExecutor loop_{&clock_};
};

TEST_F(EventStreamTest, BeginsWithItsFirstEvent) {
  const auto stream = Stream();
  EXPECT_FALSE(exchange_->stream.has_value());
  stream->Write("{}", nullptr);
  ASSERT_TRUE(exchange_->stream.has_value());
  EXPECT_EQ(exchange_->stream->content_type, "text/event-stream; charset=utf-8");
  const HttpHeaders headers = {
      {"x-request-id", "id"}, {"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  EXPECT_EQ(exchange_->stream->headers, headers);
  stream->WriteTail(StreamPosition::Tail::kDone, kSseDone);
  stream->End();
  EXPECT_EQ(exchange_->written, (std::vector<std::string>{"data: {}\n\n", "data: [DONE]\n\n"}));
  EXPECT_TRUE(exchange_->ended);
}

TEST_F(EventStreamTest, SaysWhenAnEventWasTaken) {
  const auto stream = Stream();
  int taken = 0;
  stream->Write("{}", [&taken] { ++taken; });
  EXPECT_EQ(taken, 0);
  exchange_->TakeAll();
  EXPECT_EQ(taken, 1);
}

TEST_F(EventStreamTest, NumbersTheEventsOfANamedRequest) {
  const auto stream = Stream({.id = "name"});
  EXPECT_TRUE(stream->Advance(0, Tokens(0, 3)).ok());
  stream->Write("{}", nullptr);
  EXPECT_TRUE(stream->Advance(0, Tokens(3, 1, /*last=*/true)).ok());
  stream->Write("{}", nullptr);
  stream->WriteTail(StreamPosition::Tail::kDone, kSseDone);
  EXPECT_EQ(exchange_->written,
            (std::vector<std::string>{"id: 3\ndata: {}\n\n", "id: 4f\ndata: {}\n\n",
                                      "id: 4f/done\ndata: [DONE]\n\n"}));
}

TEST_F(EventStreamTest, KnowsThePartThatAResumingClientHas) {
  const auto stream = Stream(Resumed("3"));
  EXPECT_TRUE(stream->Advance(0, Tokens(0, 3)).ok());
  EXPECT_TRUE(stream->Has(0));
  EXPECT_TRUE(stream->Advance(0, Tokens(3, 1, /*last=*/true)).ok());
  EXPECT_FALSE(stream->Has(0));
}

TEST_F(EventStreamTest, OmitsTailsThatAResumingClientHas) {
  const auto stream = Stream(Resumed("1f/usage"));
  EXPECT_TRUE(stream->Advance(0, Tokens(0, 1, /*last=*/true)).ok());
  stream->WriteTail(StreamPosition::Tail::kUsage, "data: usage\n\n");
  stream->WriteTail(StreamPosition::Tail::kDone, kSseDone);
  EXPECT_EQ(exchange_->written, (std::vector<std::string>{"id: 1f/done\ndata: [DONE]\n\n"}));
}

TEST_F(EventStreamTest, RefusesAPositionPastTheEnd) {
  const auto stream = Stream(Resumed("5"));
  EXPECT_TRUE(stream->Advance(0, Tokens(0, 2)).ok()) << "more tokens may come";
  const absl::Status status = stream->Advance(0, Tokens(2, 1, /*last=*/true));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(status.message(), "ends at 3f")) << status;
}

TEST_F(EventStreamTest, FailsWithAnEventAfterItBegan) {
  const auto stream = Stream();
  stream->Write("{}", nullptr);
  EXPECT_TRUE(stream->Fail(absl::UnavailableError("the worker crashed")));
  EXPECT_TRUE(absl::StrContains(exchange_->written.back(), "the worker crashed"));
  EXPECT_TRUE(exchange_->ended);
}

TEST_F(EventStreamTest, LeavesAnEarlyErrorToTheCaller) {
  const auto stream = Stream();
  stream->KeepAlive(&loop_, absl::Seconds(15));
  EXPECT_FALSE(stream->Fail(absl::UnavailableError("the worker crashed")));
  loop_.Advance(absl::Minutes(1));
  EXPECT_FALSE(exchange_->stream.has_value());
  EXPECT_TRUE(exchange_->written.empty());
}

TEST_F(EventStreamTest, CommentsWhileItIsSilent) {
  const auto stream = Stream();
  stream->KeepAlive(&loop_, absl::Seconds(15));
  loop_.Advance(absl::Seconds(15));
  EXPECT_EQ(exchange_->written, (std::vector<std::string>{kSseComment}));
  EXPECT_TRUE(exchange_->stream.has_value());
  loop_.Advance(absl::Seconds(15));
  EXPECT_EQ(exchange_->written.size(), 1U) << "the socket has not taken the first one";
  exchange_->TakeAll();
  loop_.Advance(absl::Seconds(15));
  EXPECT_EQ(exchange_->written.size(), 2U);
}

TEST_F(EventStreamTest, DoesNotCommentAfterAnEvent) {
  const auto stream = Stream();
  stream->KeepAlive(&loop_, absl::Seconds(15));
  stream->Write("{}", nullptr);
  exchange_->TakeAll();
  loop_.Advance(absl::Seconds(15));
  EXPECT_EQ(exchange_->written.size(), 1U);
  loop_.Advance(absl::Seconds(15));
  EXPECT_EQ(exchange_->written.size(), 2U);
}

TEST_F(EventStreamTest, DoesNotCommentAfterItsEnd) {
  for (const bool gone : {true, false}) {
    exchange_ = std::make_shared<FakeExchange>();
    const auto stream = Stream();
    stream->KeepAlive(&loop_, absl::Seconds(15));
    gone ? stream->Stop() : stream->End();
    loop_.Advance(absl::Minutes(1));
    EXPECT_TRUE(exchange_->written.empty());
  }
}

}  // namespace
}  // namespace tidepool::service
