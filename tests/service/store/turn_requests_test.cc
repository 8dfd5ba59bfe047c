// What every SessionStore stores about the request of a turn, and about the workers that generated
// its output.
#include <gtest/gtest.h>

#include <string>

#include "service/store/session_store.h"
#include "tests/service/store/store_calls.h"
#include "tests/service/store/store_under_test.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;

INSTANTIATE_TEST_SUITE_P(Stores, SessionStoreTest, testing::ValuesIn(StoresUnderTest()),
                         [](const auto& kind) { return kind.param.name; });

// A request_id belongs to one request. Another request with the same id is refused and changes
// nothing. This is true from before the first append until long after the end of the turn, and also
// after a restart.
TEST_P(SessionStoreTest, AnotherBodyDoesNotTakeATurnOver) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1", "one");
  ASSERT_TRUE(first.ok()) << first.status();
  const auto expect_refused = [&store](const char* when) {
    const auto refused = Begin(*store, "s", "r1", "other");
    EXPECT_EQ(refused.status().code(), StatusCode::kAlreadyExists) << when << refused.status();
    EXPECT_NE(refused.status().message().find("'r1'"), std::string::npos) << refused.status();
  };
  expect_refused("leased");
  AppendRequest append = FirstAppend(first->epoch);
  append.begin->body_digest = "one";
  ASSERT_TRUE(Append(*store, append).ok()) << "its lease is its own";
  expect_refused("running");
  ASSERT_TRUE(Renew(*store, "s", first->epoch, absl::Seconds(10)).ok());
  const auto again = Begin(*store, "s", "r1", "one");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->epoch, first->epoch + 1);
  ASSERT_EQ(again->log.turns.size(), 1);
  EXPECT_EQ(again->log.turns[0].body_digest, "one");
  ASSERT_TRUE(Append(*store, {.session_id = "s",
                              .epoch = again->epoch,
                              .expected_length = 4,
                              .output_ids = {11},
                              .finish = TurnFinish::kStop})
                  .ok());
  expect_refused("ended");
  const auto next = Begin(*store, "s", "r2", "other");
  ASSERT_TRUE(next.ok()) << next.status();
  append = FirstAppend(next->epoch);
  append.expected_length = 5;
  append.begin->kept = 5;
  append.begin->request_id = "r2";
  append.finish = TurnFinish::kStop;
  ASSERT_TRUE(Append(*store, append).ok());
  store.reset();
  store = Open();
  expect_refused("ended, followed by another");
  const auto replayed = Begin(*store, "s", "r1", "one");
  EXPECT_TRUE(replayed.ok()) << replayed.status();
  ASSERT_TRUE(Release(*store, "s", replayed->epoch).ok());
  // If one of the two has no digest, they are not compared.
  EXPECT_TRUE(Begin(*store, "s", "r1").ok());
  EXPECT_TRUE(Release(*store, "s", replayed->epoch + 1).ok());
  EXPECT_TRUE(Begin(*store, "s", "r2", "whatever").ok());
}

// If a lease has no turn in the log, nothing of its request is stored.
TEST_P(SessionStoreTest, ATurnThatNeverBeganIsForgotten) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1", "one");
  ASSERT_TRUE(Release(*store, "s", first->epoch).ok());
  const auto second = Begin(*store, "s", "r1", "other");
  ASSERT_TRUE(second.ok()) << second.status();
  ASSERT_TRUE(Renew(*store, "s", second->epoch, absl::ZeroDuration()).ok());
  EXPECT_TRUE(Begin(*store, "s", "r1", "third").ok()) << "expired";
}

TEST_P(SessionStoreTest, KnowsTheRequestThatMadeATurn) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1");
  AppendRequest append = FirstAppend(first->epoch);
  append.numerics_id = "avx2";
  ASSERT_TRUE(Append(*store, append).ok());
  EXPECT_EQ(Get(*store, "s")->turns[0].numerics_id, "avx2");
  AppendRequest more = {
      .session_id = "s", .epoch = first->epoch, .expected_length = 4, .output_ids = {11}};
  ASSERT_TRUE(Append(*store, more).ok());
  EXPECT_EQ(Get(*store, "s")->turns[0].numerics_id, "avx2");
  more.expected_length = 5;
  more.numerics_id = std::string(kSeveralNumerics);
  more.finish = TurnFinish::kStop;
  ASSERT_TRUE(Append(*store, more).ok());
  store.reset();
  store = Open();
  EXPECT_EQ(Get(*store, "s")->turns[0].numerics_id, kSeveralNumerics);
  // A copy contains the numerics_id. A turn that replaces the turn does not.
  SessionLogData log = *Get(*store, "s");
  log.turns[0].body_digest = "one";
  ASSERT_TRUE(Replace(*store, log).ok());
  EXPECT_EQ(Get(*store, "s")->turns, log.turns);
  log = *Get(*store, "s");
  log.turns.clear();
  log.token_ids.clear();
  ASSERT_TRUE(Replace(*store, log).ok());
  const auto again = Begin(*store, "s", "r1", "two");
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_TRUE(Append(*store, FirstAppend(again->epoch)).ok());
  EXPECT_EQ(Get(*store, "s")->turns[0].numerics_id, "");
  EXPECT_EQ(Get(*store, "s")->turns[0].body_digest, "");
}

}  // namespace
}  // namespace tidepool::service
