#include "service/http/stream_position.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "service/http/request_key.h"

namespace tidepool::service {
namespace {

v1::GenerateResponse Message(int64_t position, int tokens, bool last = false) {
  v1::GenerateResponse message;
  message.set_position(position);
  for (int i = 0; i < tokens; ++i) message.add_token_ids(7);
  if (last) message.set_finish_reason(v1::LENGTH);
  return message;
}

TEST(StreamPositionTest, IdsNameTheTokensAndTheEndOfEachChoice) {
  StreamPosition one(1);
  EXPECT_EQ(one.Id(), "0");
  one.Take(0, Message(0, 17));
  EXPECT_EQ(one.Id(), "17");
  one.Take(0, Message(17, 0, /*last=*/true));
  EXPECT_EQ(one.Id(), "17f");
  one.TakeTail(StreamPosition::Tail::kUsage);
  EXPECT_EQ(one.Id(), "17f/usage");
  one.TakeTail(StreamPosition::Tail::kDone);
  EXPECT_EQ(one.Id(), "17f/done");
  StreamPosition two(2);
  two.Take(1, Message(0, 3));
  EXPECT_EQ(two.Id(), "0,3");
}

TEST(StreamPositionTest, ParsesItsOwnFormat) {
  for (const std::string id : {"0", "17", "17f", "17f/usage", "17f/done", "1099511627776"}) {
    const auto position = StreamPosition::Parse(id, 1);
    ASSERT_TRUE(position.ok()) << position.status();
    EXPECT_EQ(position->Id(), id);
  }
  EXPECT_EQ(StreamPosition::Parse("1,2f,3", 3)->Id(), "1,2f,3");
}

TEST(StreamPositionTest, RefusesInvalidIds) {
  for (const std::string id :
       {"", "x", "f", "-1", "+1", " 1", "1 ", "1f2", "1ff", "1,2", "1,", "17/usage", "17/done",
        "17f/", "17f/x", "1.0", "99999999999999999999", "1099511627777", "\xff\n"}) {
    const auto position = StreamPosition::Parse(id, 1);
    ASSERT_FALSE(position.ok()) << id;
    EXPECT_EQ(position.status().code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(StreamPosition::Parse("1,x", 2).status().message(),
            "Last-Event-ID is '1,x', which is not the id of an event of a stream with 2 choices; "
            "send the last id of the stream, or none");
}

TEST(StreamPositionTest, CoversThePartThatItsClientHas) {
  const StreamPosition had = *StreamPosition::Parse("17,9f", 2);
  StreamPosition now(2);
  now.Take(0, Message(0, 17));
  EXPECT_TRUE(had.Covers(0, now));
  now.Take(0, Message(17, 0, /*last=*/true));
  EXPECT_FALSE(had.Covers(0, now)) << "its end is new";
  now.Take(1, Message(0, 9, /*last=*/true));
  EXPECT_TRUE(had.Covers(1, now));
  EXPECT_FALSE(had.Covers(StreamPosition::Tail::kUsage));
  EXPECT_FALSE(had.IsPast(0, now));
  const StreamPosition later = *StreamPosition::Parse("18,0", 2);
  EXPECT_TRUE(later.IsPast(0, now));
  EXPECT_FALSE(later.IsPast(1, now));
  EXPECT_TRUE(StreamPosition::Parse("1f/done", 1)->Covers(StreamPosition::Tail::kUsage));
}

TEST(StreamPositionTest, CoversNothingBeforeTheFirstToken) {
  const StreamPosition had = *StreamPosition::Parse("0,0f", 2);
  const StreamPosition now(2);
  EXPECT_FALSE(had.Covers(0, now)) << "an echo may not have come";
  EXPECT_TRUE(had.Covers(1, now));
}

OpenAiRequest Streaming(size_t choices = 1) {
  OpenAiRequest request;
  request.stream = true;
  request.choices.resize(choices);
  return request;
}

TEST(RequestKeyTest, TheIdempotencyKeyWins) {
  EXPECT_EQ(RequestKeyOf({}, Streaming())->id, "");
  EXPECT_EQ(RequestKeyOf({.request_id = "r"}, Streaming())->id, "r");
  EXPECT_EQ(RequestKeyOf({.idempotency_key = "k", .request_id = "r"}, Streaming())->id, "k");
}

TEST(RequestKeyTest, ChoicesHaveIdsOfTheirOwn) {
  const RequestKey key = {.id = "k"};
  EXPECT_EQ(key.ChoiceId(0, 1), "k");
  EXPECT_EQ(key.ChoiceId(0, 2), "k");
  EXPECT_EQ(key.ChoiceId(1, 2), "k-1");
}

TEST(RequestKeyTest, RefusesRequestsThatCannotBeResumed) {
  const auto refusal = [](const HttpHead& head, const OpenAiRequest& request) {
    return std::string(RequestKeyOf(head, request).status().message());
  };
  EXPECT_EQ(refusal({.idempotency_key = std::string(129, 'x')}, Streaming()),
            "Idempotency-Key has 129 bytes; accepted: at most 128: send a shorter one");
  EXPECT_NE(refusal({.request_id = "\xff"}, Streaming()), "");
  EXPECT_EQ(refusal({.last_event_id = "3"}, Streaming()),
            "Last-Event-ID needs the Idempotency-Key or X-Request-Id of the request to "
            "resume; send it too");
  EXPECT_EQ(refusal({.request_id = "r", .last_event_id = "3"}, OpenAiRequest()),
            "Last-Event-ID resumes a stream, but stream is not true; set it, or omit "
            "Last-Event-ID");
  EXPECT_NE(refusal({.request_id = "r", .last_event_id = "3"}, Streaming(2)), "");
}

}  // namespace
}  // namespace tidepool::service
