// The contract that every SessionStore must fulfil.
#include "service/store/session_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/store/store_calls.h"
#include "tests/service/store/store_under_test.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;

INSTANTIATE_TEST_SUITE_P(Stores, SessionStoreTest, testing::ValuesIn(StoresUnderTest()),
                         [](const auto& kind) { return kind.param.name; });

TEST_P(SessionStoreTest, KeepsATurn) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(turn.ok()) << turn.status();
  EXPECT_EQ(turn->log.info.token_count, 0);
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  ASSERT_TRUE(Append(*store, {.session_id = "s",
                              .epoch = turn->epoch,
                              .expected_length = 4,
                              .output_ids = {11, -1},
                              .output_text = "b",
                              .finish = TurnFinish::kStop})
                  .ok());
  store.reset();

  store = Open();
  const auto log = Get(*store, "s");
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->token_ids, (std::vector<int32_t>{1, 2, 3, 10, 11, -1}));
  EXPECT_EQ(log->info.token_count, 6);
  EXPECT_EQ(log->info.turn_count, 1);
  EXPECT_EQ(log->info.kind, SessionKind::kChat);
  EXPECT_FALSE(log->info.busy);
  ASSERT_EQ(log->turns.size(), 1);
  const StoredTurn& stored = log->turns[0];
  EXPECT_EQ(stored.request_id, "r1");
  EXPECT_EQ(stored.output_start, 3);
  EXPECT_EQ(stored.end, 6);
  EXPECT_EQ(stored.finish, TurnFinish::kStop);
  EXPECT_EQ(stored.messages, (std::vector<StoredMessage>{{.role = "user", .content = "hi"}}));
  EXPECT_EQ(stored.response, "ab");
}

TEST_P(SessionStoreTest, AppendComparesBeforeItSets) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(turn.ok());
  AppendRequest wrong_length = FirstAppend(turn->epoch);
  wrong_length.expected_length = 1;
  EXPECT_EQ(Append(*store, wrong_length).code(), StatusCode::kAborted);
  EXPECT_EQ(Append(*store, FirstAppend(turn->epoch + 1)).code(), StatusCode::kAborted);
  AppendRequest beyond = FirstAppend(turn->epoch);
  beyond.begin->kept = 5;
  EXPECT_EQ(Append(*store, beyond).code(), StatusCode::kAborted);
  EXPECT_EQ(Get(*store, "s")->info.token_count, 0);
  EXPECT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  // The same append again expects another length.
  EXPECT_EQ(Append(*store, FirstAppend(turn->epoch)).code(), StatusCode::kAborted);
  EXPECT_EQ(Get(*store, "s")->info.token_count, 4);
}

TEST_P(SessionStoreTest, OneTurnAtATime) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Begin(*store, "s", "r2").status().code(), StatusCode::kAborted);
  EXPECT_TRUE(Get(*store, "s")->info.busy);
  EXPECT_EQ(Delete(*store, "s").code(), StatusCode::kAborted);

  // The same request takes the lease over, and the old epoch is no longer valid.
  const auto again = Begin(*store, "s", "r1");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->epoch, first->epoch + 1);
  EXPECT_EQ(again->log.info.epoch, again->epoch);
  EXPECT_EQ(Renew(*store, "s", first->epoch, absl::Seconds(10)).code(), StatusCode::kAborted);
  EXPECT_EQ(Append(*store, FirstAppend(first->epoch)).code(), StatusCode::kAborted);
  EXPECT_TRUE(Renew(*store, "s", again->epoch, absl::Seconds(10)).ok());
  ASSERT_TRUE(Append(*store, FirstAppend(again->epoch)).ok());
  EXPECT_EQ(Get(*store, "s")->turns[0].response, "a");
  EXPECT_EQ(Get(*store, "s")->turns[0].finish, TurnFinish::kRunning);

  // After the lease has expired, another turn can take it. The tokens of the first turn stay in the
  // log, as a cancelled turn.
  EXPECT_TRUE(Renew(*store, "s", again->epoch, absl::ZeroDuration()).ok());
  EXPECT_FALSE(Get(*store, "s")->info.busy);
  const auto taken = Begin(*store, "s", "r2");
  ASSERT_TRUE(taken.ok()) << taken.status();
  ASSERT_EQ(taken->log.turns.size(), 1);
  EXPECT_EQ(taken->log.turns[0].finish, TurnFinish::kCancelled);
  EXPECT_EQ(taken->log.turns[0].end, 4);
  EXPECT_EQ(taken->log.turns[0].response, "a");
  EXPECT_EQ(taken->log.token_ids, (std::vector<int32_t>{1, 2, 3, 10}));
  // A turn that has lost its lease cannot release it.
  EXPECT_TRUE(Release(*store, "s", again->epoch).ok());
  EXPECT_TRUE(Get(*store, "s")->info.busy);
  EXPECT_TRUE(Release(*store, "s", taken->epoch).ok());
  EXPECT_EQ(Renew(*store, "s", taken->epoch, absl::Seconds(10)).code(), StatusCode::kAborted);
  EXPECT_TRUE(Begin(*store, "s", "r3").ok());
}

TEST_P(SessionStoreTest, ATurnContinuesForItsOwnRequest) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(first->epoch)).ok());
  const auto append = [&store](int64_t epoch, int64_t length, TurnFinish finish) {
    return Append(*store, {.session_id = "s",
                           .epoch = epoch,
                           .expected_length = length,
                           .output_ids = {static_cast<int32_t>(length)},
                           .output_text = "b",
                           .finish = finish});
  };
  // Checks the log while the turn runs, after it was cancelled, and after the store was opened
  // again.
  const auto running = Begin(*store, "s", "r1");
  ASSERT_EQ(running->log.turns.size(), 1);
  EXPECT_EQ(running->log.turns[0].finish, TurnFinish::kRunning);
  EXPECT_EQ(running->log.turns[0].response, "a");
  ASSERT_TRUE(append(running->epoch, 4, TurnFinish::kCancelled).ok());
  EXPECT_EQ(Get(*store, "s")->turns[0].finish, TurnFinish::kCancelled);
  const auto cancelled = Begin(*store, "s", "r1");
  EXPECT_EQ(cancelled->log.turns[0].finish, TurnFinish::kRunning);
  EXPECT_EQ(cancelled->log.turns[0].response, "ab");
  ASSERT_TRUE(append(cancelled->epoch, 5, TurnFinish::kRunning).ok());
  store.reset();
  store = Open();
  const auto reopened = Begin(*store, "s", "r1");
  EXPECT_EQ(reopened->log.turns[0].finish, TurnFinish::kRunning);
  ASSERT_TRUE(append(reopened->epoch, 6, TurnFinish::kStop).ok());
  const auto log = Get(*store, "s");
  EXPECT_EQ(log->token_ids, (std::vector<int32_t>{1, 2, 3, 10, 4, 5, 6}));
  ASSERT_EQ(log->turns.size(), 1);
  EXPECT_EQ(log->turns[0].response, "abbb");
  EXPECT_EQ(log->turns[0].end, 7);
  // A turn that has ended does not change.
  const auto ended = Begin(*store, "s", "r1");
  EXPECT_EQ(ended->log.turns[0].finish, TurnFinish::kStop);
  EXPECT_TRUE(Release(*store, "s", ended->epoch).ok());
}

TEST_P(SessionStoreTest, ACopyOfAnInterruptedTurnContinues) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1");
  AppendRequest whole = FirstAppend(first->epoch);
  whole.finish = TurnFinish::kCancelled;
  ASSERT_TRUE(Append(*store, whole).ok());
  const SessionLogData log = *Get(*store, "s");
  ASSERT_TRUE(Replace(*store, log).ok());
  const auto again = Begin(*store, "s", "r1");
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->log.turns[0].finish, TurnFinish::kRunning);
  EXPECT_EQ(again->log.turns[0].response, "a");
  ASSERT_TRUE(Append(*store, {.session_id = "s",
                              .epoch = again->epoch,
                              .expected_length = 4,
                              .output_ids = {11},
                              .output_text = "b",
                              .finish = TurnFinish::kLength})
                  .ok());
  EXPECT_EQ(Get(*store, "s")->turns[0].response, "ab");
  EXPECT_EQ(Get(*store, "s")->turns[0].finish, TurnFinish::kLength);
}

TEST_P(SessionStoreTest, CutsWhereTheTemplateRewroteTheLog) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1");
  AppendRequest whole = FirstAppend(first->epoch);
  whole.finish = TurnFinish::kStop;
  ASSERT_TRUE(Append(*store, whole).ok());
  const auto second = Begin(*store, "s", "r2");
  ASSERT_TRUE(second.ok());
  ASSERT_TRUE(Append(*store, {.session_id = "s",
                              .epoch = second->epoch,
                              .expected_length = 4,
                              .begin = TurnStart{.request_id = "r2",
                                                 .kind = SessionKind::kChat,
                                                 .kept = 2,
                                                 .input_ids = {7, 8}},
                              .output_ids = {9},
                              .output_text = "z",
                              .finish = TurnFinish::kLength})
                  .ok());
  const auto log = Get(*store, "s");
  EXPECT_EQ(log->token_ids, (std::vector<int32_t>{1, 2, 7, 8, 9}));
  ASSERT_EQ(log->turns.size(), 2);
  EXPECT_EQ(log->turns[1].start, 2);
  EXPECT_EQ(log->turns[1].output_start, 4);
  EXPECT_EQ(log->turns[0].response, "a");
  EXPECT_EQ(log->turns[1].response, "z");
}

TEST_P(SessionStoreTest, PrincipalsDoNotSeeEachOther) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s", "ann").ok());
  EXPECT_EQ(Create(*store, "s", "bob").status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Get(*store, "s", "bob").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(Delete(*store, "s", "bob").code(), StatusCode::kNotFound);
}

TEST_P(SessionStoreTest, ListsNewestFirstInPages) {
  auto store = Open();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Create(*store, absl::StrCat("s", i)).ok());
  ASSERT_TRUE(Create(*store, "other", "bob").ok());
  std::vector<std::string> ids;
  std::string token;
  int pages = 0;
  do {
    const auto page = List(*store, 2, token);
    ASSERT_TRUE(page.ok());
    for (const SessionInfo& info : page->sessions) ids.push_back(info.session_id);
    token = page->next_page_token;
    ++pages;
  } while (!token.empty());
  EXPECT_EQ(ids, (std::vector<std::string>{"s4", "s3", "s2", "s1", "s0"}));
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(List(*store, 2, "x1").status().code(), StatusCode::kInvalidArgument);

  EXPECT_TRUE(Delete(*store, "s3").ok());
  EXPECT_EQ(Get(*store, "s3").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(*Count(*store), 5);
}

TEST_P(SessionStoreTest, ManyAppendsAtOnceKeepTheirOrder) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  std::vector<StatusAnswer> answers(500);
  for (int i = 0; i < 500; ++i) {
    store->Append({.session_id = "s",
                   .epoch = turn->epoch,
                   .expected_length = 4 + i,
                   .output_ids = {100 + i},
                   .output_text = "x"},
                  answers[i].Taker());
  }
  for (StatusAnswer& answer : answers) ASSERT_TRUE(answer.Get().ok());
  const auto log = Get(*store, "s");
  ASSERT_EQ(log->token_ids.size(), 504);
  for (int i = 0; i < 500; ++i) ASSERT_EQ(log->token_ids[4 + i], 100 + i);
}

TEST_P(SessionStoreTest, APrincipalHasALimitedNumberOfSessions) {
  auto store = Open(/*max_sessions=*/2);
  ASSERT_TRUE(Create(*store, "one").ok());
  ASSERT_TRUE(Create(*store, "two").ok());
  const auto third = Create(*store, "three");
  EXPECT_EQ(third.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(third.status().message().find("2 sessions"), std::string::npos) << third.status();
  SessionLogData copy = *Get(*store, "one");
  copy.info.session_id = "four";
  EXPECT_EQ(Insert(*store, copy).status().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Create(*store, "three", "bob").ok());
  ASSERT_TRUE(Delete(*store, "one").ok());
  EXPECT_TRUE(Insert(*store, copy).ok());
}

TEST_P(SessionStoreTest, ExpiresUnchangedSessionsWithoutARunningTurn) {
  auto store = Open();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Create(*store, absl::StrCat("s", i)).ok());
  const auto held = Begin(*store, "s0", "r");
  EXPECT_EQ(*Expire(*store, absl::Hours(1), 10), 0);
  EXPECT_EQ(*Expire(*store, absl::ZeroDuration(), 2), 2);
  EXPECT_EQ(*Expire(*store, absl::ZeroDuration(), 10), 2);
  EXPECT_EQ(*Count(*store), 1);
  EXPECT_TRUE(Get(*store, "s0")->info.busy);
  ASSERT_TRUE(Release(*store, "s0", held->epoch).ok());
  EXPECT_EQ(*Expire(*store, absl::ZeroDuration(), 10), 1);
  EXPECT_TRUE(List(*store, 10, "")->sessions.empty());
  EXPECT_TRUE(Verify(*store)->empty());
}

TEST_P(SessionStoreTest, ShowsEverybodysToWhomAsksForThem) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "a", "ann").ok());
  ASSERT_TRUE(Create(*store, "b", "bob").ok());
  const auto page = List(*store, 1, "", std::nullopt);
  ASSERT_EQ(page->sessions.size(), 1);
  EXPECT_EQ(page->sessions[0].session_id, "b");
  EXPECT_EQ(page->sessions[0].principal, "bob");
  EXPECT_EQ(List(*store, 1, page->next_page_token, std::nullopt)->sessions[0].session_id, "a");
  EXPECT_TRUE(Get(*store, "a", std::nullopt).ok());
  EXPECT_TRUE(Verify(*store)->empty());
}

// Returns a session with two turns and more tokens than one row holds.
SessionLogData LongSession() {
  SessionLogData log;
  log.info = {.session_id = "s",
              .principal = "ann",
              .model = "m",
              .model_digest = "d",
              .kind = SessionKind::kChat,
              .create_time = absl::FromUnixMicros(1'700'000'000'000'001),
              .update_time = absl::FromUnixMicros(1'700'000'100'000'002),
              .token_count = 3000,
              .turn_count = 2};
  for (int32_t i = 0; i < 3000; ++i) log.token_ids.push_back(i * 7);
  log.turns = {{.request_id = "r1",
                .start = 0,
                .output_start = 1000,
                .end = 1500,
                .messages = {{.role = "user", .content = "hi", .name = "ann"}},
                .response = "so \xC3\xA4\n\"",
                .finish = TurnFinish::kStop},
               {.request_id = "r2",
                .start = 1200,
                .output_start = 1700,
                .end = 3000,
                .messages = {{.role = "tool", .content = "", .tool_call_id = "c"}},
                .response = "",
                .finish = TurnFinish::kLength}};
  return log;
}

TEST_P(SessionStoreTest, InsertsAWholeSession) {
  auto store = Open();
  const SessionLogData log = LongSession();
  const auto info = Insert(*store, log);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->token_count, 3000);
  EXPECT_EQ(Insert(*store, log).status().code(), StatusCode::kAlreadyExists);
  store.reset();
  store = Open();
  const auto read = Get(*store, "s");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->token_ids, log.token_ids);
  EXPECT_EQ(read->turns, log.turns);
  EXPECT_EQ(read->info.create_time, log.info.create_time);
  EXPECT_EQ(read->info.update_time, log.info.update_time);
  EXPECT_EQ(read->info.kind, SessionKind::kChat);
  EXPECT_EQ(List(*store, 10, "")->sessions.size(), 1);

  // This session continues like any other.
  const auto turn = Begin(*store, "s", "r3");
  ASSERT_TRUE(turn.ok()) << turn.status();
  AppendRequest append = FirstAppend(turn->epoch);
  append.expected_length = 3000;
  append.begin->kept = 1100;
  append.finish = TurnFinish::kStop;
  ASSERT_TRUE(Append(*store, append).ok());
  const auto after = Get(*store, "s");
  ASSERT_EQ(after->token_ids.size(), 1104);
  EXPECT_EQ(after->token_ids[1099], 1099 * 7);
  EXPECT_EQ(after->token_ids[1100], 1);
}

TEST_P(SessionStoreTest, ARunningTurnIsInsertedAsCancelled) {
  auto store = Open();
  SessionLogData log = LongSession();
  log.turns[1].finish = TurnFinish::kRunning;
  ASSERT_TRUE(Insert(*store, log).ok());
  EXPECT_EQ(Get(*store, "s")->turns[1].finish, TurnFinish::kCancelled);
}

TEST_P(SessionStoreTest, ReplacesOnlyUnchangedSessions) {
  auto store = Open();
  ASSERT_TRUE(Insert(*store, LongSession()).ok());
  SessionLogData log = *Get(*store, "s");
  log.token_ids.resize(1500);
  log.turns.resize(1);
  const auto replaced = Replace(*store, log);
  ASSERT_TRUE(replaced.ok()) << replaced.status();
  EXPECT_EQ(replaced->token_count, 1500);
  EXPECT_EQ(replaced->turn_count, 1);
  EXPECT_EQ(replaced->create_time, log.info.create_time);
  const auto read = Get(*store, "s");
  EXPECT_EQ(read->token_ids, log.token_ids);
  EXPECT_EQ(read->turns, log.turns);
  // The session has changed since it was read.
  EXPECT_EQ(Replace(*store, log).status().code(), StatusCode::kAborted);

  const auto turn = Begin(*store, "s", "r2");
  EXPECT_EQ(Replace(*store, *Get(*store, "s")).status().code(), StatusCode::kAborted);
  ASSERT_TRUE(Release(*store, "s", turn->epoch).ok());
  SessionLogData foreign = *Get(*store, "s");
  foreign.info.principal = "bob";
  EXPECT_EQ(Replace(*store, foreign).status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Replace(*store, *Get(*store, "s")).ok());
  ASSERT_TRUE(Delete(*store, "s").ok());
  EXPECT_EQ(Replace(*store, log).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tidepool::service
