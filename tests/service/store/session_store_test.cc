#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "service/store/message_json.h"
#include "service/store/sqlite_session_store.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;

// Waits for a call's answer.
template <typename T>
class Answer {
 public:
  SessionStore::Done<T> Taker() {
    return [this](absl::StatusOr<T> value) { promise_.set_value(std::move(value)); };
  }
  absl::StatusOr<T> Get() { return promise_.get_future().get(); }

 private:
  std::promise<absl::StatusOr<T>> promise_;
};

class StatusAnswer {
 public:
  SessionStore::DoneStatus Taker() {
    return [this](absl::Status status) { promise_.set_value(std::move(status)); };
  }
  absl::Status Get() { return promise_.get_future().get(); }

 private:
  std::promise<absl::Status> promise_;
};

absl::StatusOr<SessionInfo> Create(SessionStore& store, const std::string& id,
                                   const std::string& principal = "ann") {
  Answer<SessionInfo> answer;
  store.Create({.session_id = id, .principal = principal, .model = "m", .model_digest = "d"},
               answer.Taker());
  return answer.Get();
}

absl::StatusOr<SessionLogData> Get(SessionStore& store, const std::string& id,
                                   const std::string& principal = "ann") {
  Answer<SessionLogData> answer;
  store.Get(principal, id, answer.Taker());
  return answer.Get();
}

absl::StatusOr<OpenTurn> Begin(SessionStore& store, const std::string& id,
                               const std::string& request) {
  Answer<OpenTurn> answer;
  store.BeginTurn({.session_id = id, .principal = "ann", .request_id = request}, answer.Taker());
  return answer.Get();
}

absl::Status Append(SessionStore& store, AppendRequest append) {
  StatusAnswer answer;
  store.Append(std::move(append), answer.Taker());
  return answer.Get();
}

absl::StatusOr<SessionPage> List(SessionStore& store, int size, const std::string& token) {
  Answer<SessionPage> answer;
  store.List("ann", size, token, answer.Taker());
  return answer.Get();
}

AppendRequest FirstAppend(int64_t epoch) {
  return {.session_id = "s",
          .epoch = epoch,
          .expected_length = 0,
          .begin = TurnStart{.request_id = "r1",
                             .kind = SessionKind::kChat,
                             .kept = 0,
                             .input_ids = {1, 2, 3},
                             .messages = {{.role = "user", .content = "hi"}}},
          .output_ids = {10},
          .output_text = "a"};
}

class SessionStoreTest : public testing::Test {
 protected:
  SessionStoreTest() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(testing::TempDir()) / absl::StrCat(name, "_", getpid());
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "sessions.db").string();
  }
  ~SessionStoreTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SessionStore> Open(int64_t max_bytes = 0) {
    auto store = SqliteSessionStore::Open({.path = path_, .max_bytes = max_bytes});
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(SessionStoreTest, KeepsATurn) {
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
  const std::vector<StoredMessage> messages = {{.role = "user", .content = "hi"},
                                               {.role = "assistant", .content = "ab"}};
  EXPECT_EQ(stored.messages, messages);
}

TEST_F(SessionStoreTest, AppendComparesBeforeItSets) {
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
  // The same again is of another length.
  EXPECT_EQ(Append(*store, FirstAppend(turn->epoch)).code(), StatusCode::kAborted);
  EXPECT_EQ(Get(*store, "s")->info.token_count, 4);
}

TEST_F(SessionStoreTest, OneTurnAtATime) {
  fakes::ManualClock clock;
  auto store = SqliteSessionStore::Open({.path = ":memory:", .clock = &clock}).value();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1");
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(Begin(*store, "s", "r2").status().code(), StatusCode::kAborted);
  EXPECT_TRUE(Get(*store, "s")->info.busy);
  StatusAnswer busy;
  store->Delete("ann", "s", busy.Taker());
  EXPECT_EQ(busy.Get().code(), StatusCode::kAborted);

  // The same request takes over, and the old epoch is worth nothing.
  const auto again = Begin(*store, "s", "r1");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->epoch, first->epoch + 1);
  StatusAnswer stale;
  store->RenewLease("s", first->epoch, absl::Seconds(10), stale.Taker());
  EXPECT_EQ(stale.Get().code(), StatusCode::kAborted);

  // Renewed, the lease outlives its first ten seconds; then it expires.
  clock.Advance(absl::Seconds(8));
  StatusAnswer renewed;
  store->RenewLease("s", again->epoch, absl::Seconds(10), renewed.Taker());
  EXPECT_TRUE(renewed.Get().ok());
  clock.Advance(absl::Seconds(8));
  EXPECT_EQ(Begin(*store, "s", "r2").status().code(), StatusCode::kAborted);
  ASSERT_TRUE(Append(*store, FirstAppend(again->epoch)).ok());
  clock.Advance(absl::Seconds(3));
  const auto taken = Begin(*store, "s", "r2");
  ASSERT_TRUE(taken.ok()) << taken.status();
  // What the loser had logged is there, as a turn cut short.
  ASSERT_EQ(taken->log.turns.size(), 1);
  EXPECT_EQ(taken->log.turns[0].finish, TurnFinish::kCancelled);
  EXPECT_EQ(taken->log.token_ids, (std::vector<int32_t>{1, 2, 3, 10}));
  StatusAnswer released;
  store->ReleaseLease("s", taken->epoch, released.Taker());
  EXPECT_TRUE(released.Get().ok());
  EXPECT_TRUE(Begin(*store, "s", "r3").ok());
}

TEST_F(SessionStoreTest, CutsWhereTheTemplateRewroteTheLog) {
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
  EXPECT_EQ(log->turns[0].messages.back().content, "a");
  EXPECT_EQ(log->turns[1].messages.back().content, "z");
}

TEST_F(SessionStoreTest, PrincipalsDoNotSeeEachOther) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s", "ann").ok());
  EXPECT_EQ(Create(*store, "s", "bob").status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(Get(*store, "s", "bob").status().code(), StatusCode::kNotFound);
  StatusAnswer answer;
  store->Delete("bob", "s", answer.Taker());
  EXPECT_EQ(answer.Get().code(), StatusCode::kNotFound);
}

TEST_F(SessionStoreTest, ListsNewestFirstInPages) {
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

  StatusAnswer deleted;
  store->Delete("ann", "s3", deleted.Taker());
  EXPECT_TRUE(deleted.Get().ok());
  EXPECT_EQ(Get(*store, "s3").status().code(), StatusCode::kNotFound);
  Answer<int64_t> count;
  store->Count(count.Taker());
  EXPECT_EQ(*count.Get(), 5);
}

TEST_F(SessionStoreTest, ASecondProcessIsRefused) {
  auto store = Open();
  const auto second = SqliteSessionStore::Open({.path = path_});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(second.status().message(), "another process")) << second.status();
  EXPECT_TRUE(absl::StrContains(second.status().message(), path_)) << second.status();
}

TEST_F(SessionStoreTest, RefusesForeignAndNewerFiles) {
  {
    std::ofstream(path_) << std::string(5000, 'x');
    const auto store = SqliteSessionStore::Open({.path = path_});
    EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition) << store.status();
    std::filesystem::remove(path_);
  }
  Open().reset();
  {
    auto db = SqliteDb::Open(path_);
    ASSERT_TRUE(db->Execute("PRAGMA user_version = 2").ok());
  }
  const auto newer = SqliteSessionStore::Open({.path = path_});
  EXPECT_EQ(newer.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(newer.status().message(), "newer program")) << newer.status();

  const std::string other = (folder_ / "other.db").string();
  {
    auto db = SqliteDb::Open(other);
    ASSERT_TRUE(db->Execute("CREATE TABLE cats (name TEXT)").ok());
  }
  const auto foreign = SqliteSessionStore::Open({.path = other});
  EXPECT_TRUE(absl::StrContains(foreign.status().message(), "another program")) << foreign.status();
}

TEST_F(SessionStoreTest, AFullDiskFailsTheAppendAndKeepsTheRest) {
  auto store = Open(/*max_bytes=*/128 << 10);
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  AppendRequest huge = {.session_id = "s", .epoch = turn->epoch, .expected_length = 4};
  huge.output_ids.assign(100'000, 5);
  const absl::Status full = Append(*store, huge);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full;
  // The store goes on, and nothing of the failed append is there.
  EXPECT_EQ(Get(*store, "s")->info.token_count, 4);
  EXPECT_TRUE(Append(*store, {.session_id = "s",
                              .epoch = turn->epoch,
                              .expected_length = 4,
                              .output_ids = {11},
                              .finish = TurnFinish::kCancelled})
                  .ok());
}

TEST_F(SessionStoreTest, ManyAppendsAtOnceKeepTheirOrder) {
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

// A child appends one token after another and says so for each that was acknowledged; it is killed
// in the middle. Whatever it said must be there.
TEST_F(SessionStoreTest, SurvivesKill) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto store = SqliteSessionStore::Open({.path = path_});
    if (!store.ok() || !Create(**store, "s").ok()) _exit(1);
    const auto turn = Begin(**store, "s", "r1");
    if (!turn.ok() || !Append(**store, FirstAppend(turn->epoch)).ok()) _exit(1);
    for (int32_t i = 0;; ++i) {
      if (!Append(**store, {.session_id = "s",
                            .epoch = turn->epoch,
                            .expected_length = 4 + i,
                            .output_ids = {i},
                            .output_text = "y"})
               .ok()) {
        _exit(1);
      }
      if (write(pipe_ends[1], &i, sizeof(i)) != sizeof(i)) _exit(1);
    }
  }
  close(pipe_ends[1]);
  int32_t last = -1;
  while (last < 200 && read(pipe_ends[0], &last, sizeof(last)) == sizeof(last)) {
  }
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  while (read(pipe_ends[0], &last, sizeof(last)) == sizeof(last)) {
  }
  close(pipe_ends[0]);
  ASSERT_GE(last, 200);

  auto store = Open();
  const auto log = Get(*store, "s");
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_GE(log->token_ids.size(), 4 + last + 1);
  for (int32_t i = 0; i <= last; ++i) ASSERT_EQ(log->token_ids[4 + i], i);
  EXPECT_FALSE(log->info.busy);
  ASSERT_EQ(log->turns.size(), 1);
  EXPECT_EQ(log->turns[0].finish, TurnFinish::kCancelled);
  EXPECT_EQ(log->turns[0].end, log->info.token_count);
  EXPECT_EQ(log->turns[0].messages.back().content,
            "a" + std::string(log->token_ids.size() - 4, 'y'));
  EXPECT_TRUE(Begin(*store, "s", "r2").ok());
}

TEST(MessageJsonTest, RoundTripsAndRefusesDamage) {
  const std::vector<StoredMessage> messages = {
      {.role = "tool", .content = "ä\"\n", .name = "n", .tool_call_id = "c"},
      {.role = "assistant", .content = "", .tool_calls_json = "[{}]"}};
  EXPECT_EQ(MessagesFromJson(MessagesToJson(messages)).value(), messages);
  for (const char* damaged :
       {"", "{}", "[1]", R"([{"role":1,"content":""}])", R"([{"role":"a"}])"}) {
    EXPECT_EQ(MessagesFromJson(damaged).status().code(), StatusCode::kInternal) << damaged;
  }
}

}  // namespace
}  // namespace tidepool::service
