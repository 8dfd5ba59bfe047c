// What only the store in a file does. session_store_test.cc tests the contract of all stores.
#include "service/store/sqlite_session_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "service/store/message_json.h"
#include "service/store/session_schema.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/store/store_calls.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;

class SqliteSessionStoreTest : public testing::Test {
 protected:
  SqliteSessionStoreTest() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(testing::TempDir()) / absl::StrCat(name, "_", getpid());
    std::filesystem::create_directories(folder_);
    path_ = (folder_ / "sessions.db").string();
  }
  ~SqliteSessionStoreTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SessionStore> Open(int64_t max_bytes = 0) {
    auto store = SqliteSessionStore::Open({.path = path_, .max_bytes = max_bytes});
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(SqliteSessionStoreTest, LeasesExpireByTheClock) {
  fakes::ManualClock clock;
  auto store = SqliteSessionStore::Open({.path = ":memory:", .clock = &clock}).value();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1");
  ASSERT_TRUE(first.ok());
  // A lease that is renewed lasts longer than its first ten seconds. Later it expires.
  clock.Advance(absl::Seconds(8));
  EXPECT_TRUE(Renew(*store, "s", first->epoch, absl::Seconds(10)).ok());
  clock.Advance(absl::Seconds(8));
  EXPECT_EQ(Begin(*store, "s", "r2").status().code(), StatusCode::kAborted);
  clock.Advance(absl::Seconds(3));
  EXPECT_TRUE(Begin(*store, "s", "r2").ok());
}

TEST_F(SqliteSessionStoreTest, LeasesTakeNoNoticeOfTheWallClock) {
  fakes::ManualClock clock;
  auto store = SqliteSessionStore::Open({.path = ":memory:", .clock = &clock}).value();
  ASSERT_TRUE(Create(*store, "s").ok());
  ASSERT_TRUE(Begin(*store, "s", "r1").ok());
  clock.JumpWall(absl::Hours(1));
  EXPECT_EQ(Begin(*store, "s", "r2").status().code(), StatusCode::kAborted) << "it is held";
  clock.JumpWall(-absl::Hours(2));
  clock.Advance(absl::Seconds(11));
  EXPECT_TRUE(Begin(*store, "s", "r2").ok()) << "it has expired";
}

// The wall clock may be set to any time: a session exists for its whole TTL after its last change.
TEST_F(SqliteSessionStoreTest, NoJumpOfTheWallClockMakesASessionOlder) {
  const absl::Duration ttl = absl::Hours(24);
  fakes::ManualClock clock;
  clock.Advance(absl::Hours(1000));
  auto store = SqliteSessionStore::Open({.path = path_, .clock = &clock}).value();
  ASSERT_TRUE(Create(*store, "before").ok());
  clock.Advance(absl::Hours(23));
  clock.JumpWall(absl::Hours(365 * 24));
  ASSERT_TRUE(Create(*store, "ahead").ok());
  EXPECT_EQ(*Expire(*store, ttl, 10), 0) << "a year passed in a moment";
  clock.Advance(absl::Hours(2));
  EXPECT_EQ(*Expire(*store, ttl, 10), 1);
  EXPECT_EQ(Get(*store, "before").status().code(), StatusCode::kNotFound);

  // Set the clock back, and forward again. What was written in between counts as written now.
  clock.JumpWall(-absl::Hours(2 * 365 * 24));
  ASSERT_TRUE(Create(*store, "turned-back").ok());
  EXPECT_EQ(*Expire(*store, ttl, 10), 0);
  clock.JumpWall(absl::Hours(365 * 24));
  EXPECT_EQ(*Expire(*store, ttl, 10), 0);
  clock.Advance(absl::Hours(25));
  EXPECT_EQ(*Expire(*store, ttl, 10), 1);
  EXPECT_EQ(Get(*store, "turned-back").status().code(), StatusCode::kNotFound);

  // The store is opened again, and the wall clock is right. From now on the wall clock counts,
  // including the time in which no front was running. So sessions that were written with a time in
  // the future now get older.
  ASSERT_TRUE(Create(*store, "last").ok());
  store.reset();
  clock.Advance(absl::Hours(25));
  store = SqliteSessionStore::Open({.path = path_, .clock = &clock}).value();
  EXPECT_EQ(*Expire(*store, ttl, 10), 1);
  EXPECT_EQ(Get(*store, "last").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Get(*store, "ahead").ok());
}

TEST_F(SqliteSessionStoreTest, ASecondProcessIsRefused) {
  auto store = Open();
  const auto second = SqliteSessionStore::Open({.path = path_});
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(second.status().message(), "another process")) << second.status();
  EXPECT_TRUE(absl::StrContains(second.status().message(), path_)) << second.status();
}

TEST_F(SqliteSessionStoreTest, RefusesForeignAndNewerFiles) {
  {
    std::ofstream(path_) << std::string(5000, 'x');
    const auto store = SqliteSessionStore::Open({.path = path_});
    EXPECT_EQ(store.status().code(), StatusCode::kDataLoss) << store.status();
    EXPECT_TRUE(absl::StrContains(store.status().message(), "another file with --store"));
    std::filesystem::remove(path_);
  }
  Open().reset();
  {
    auto db = SqliteDb::Open(path_);
    ASSERT_TRUE(
        db->Execute(absl::StrCat("PRAGMA user_version = ", kSessionSchemaVersion + 1).c_str())
            .ok());
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

// The schema of version 1, as in files of that time, with one session.
constexpr char kVersion1[] = R"(
CREATE TABLE sessions (
  key INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL UNIQUE,
  principal TEXT NOT NULL, model TEXT NOT NULL, model_digest TEXT NOT NULL,
  kind INTEGER NOT NULL DEFAULT 0, create_us INTEGER NOT NULL, update_us INTEGER NOT NULL,
  token_count INTEGER NOT NULL DEFAULT 0, turn_count INTEGER NOT NULL DEFAULT 0,
  epoch INTEGER NOT NULL DEFAULT 0, lease_request TEXT NOT NULL DEFAULT '',
  lease_until_us INTEGER NOT NULL DEFAULT 0);
CREATE INDEX sessions_by_principal ON sessions (principal, key);
CREATE TABLE turns (
  session INTEGER NOT NULL, turn INTEGER NOT NULL, request_id TEXT NOT NULL,
  start INTEGER NOT NULL, output_start INTEGER NOT NULL, end INTEGER NOT NULL DEFAULT 0,
  messages TEXT NOT NULL, answer TEXT NOT NULL DEFAULT '', finish INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (session, turn)) WITHOUT ROWID;
CREATE INDEX running_turns ON turns (session) WHERE finish = 0;
CREATE TABLE chunks (
  session INTEGER NOT NULL, start INTEGER NOT NULL, tokens BLOB NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (session, start)) WITHOUT ROWID;
INSERT INTO sessions (session_id, principal, model, model_digest, create_us, update_us, kind,
                      token_count, turn_count) VALUES ('old', 'ann', 'm', 'd', 1, 2, 1, 2, 1);
INSERT INTO turns (session, turn, request_id, start, output_start, end, messages, answer, finish)
  VALUES (1, 0, 'r', 0, 1, 2, '[]', 'x', 1);
INSERT INTO chunks VALUES (1, 0, x'0700000008000000', 'x');
PRAGMA application_id = 0x54504c31;
PRAGMA user_version = 1;
)";
constexpr char kToVersion2[] =
    "CREATE INDEX sessions_by_update ON sessions (update_us); PRAGMA user_version = 2;";

TEST_F(SqliteSessionStoreTest, BringsOlderFilesUpToDate) {
  for (const int version : {1, 2}) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    {
      auto db = SqliteDb::Open(path_);
      ASSERT_TRUE(db->Execute(kVersion1).ok());
      if (version == 2) {
        ASSERT_TRUE(db->Execute(kToVersion2).ok());
      }
    }
    auto store = Open();
    ASSERT_NE(store, nullptr) << version;
    const auto old = Get(*store, "old");
    ASSERT_TRUE(old.ok()) << old.status();
    EXPECT_EQ(old->token_ids, (std::vector<int32_t>{7, 8}));
    EXPECT_EQ(old->turns, (std::vector<StoredTurn>{{.request_id = "r",
                                                    .start = 0,
                                                    .output_start = 1,
                                                    .end = 2,
                                                    .response = "x",
                                                    .finish = TurnFinish::kStop}}));
    // The old turn is recognised by its request_id alone. New turns are recognised by all fields.
    const auto again = Begin(*store, "old", "r", "one");
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_TRUE(Release(*store, "old", again->epoch).ok());
    const auto next = Begin(*store, "old", "r2", "one");
    AppendRequest append = FirstAppend(next->epoch);
    append.session_id = "old";
    append.expected_length = append.begin->kept = 2;
    append.begin->request_id = "r2";
    append.begin->body_digest = "one";
    append.numerics_id = "avx2";
    ASSERT_TRUE(Append(*store, append).ok());
    EXPECT_EQ(Begin(*store, "old", "r2", "two").status().code(), StatusCode::kAlreadyExists);
    EXPECT_TRUE(Verify(*store)->empty());
    store.reset();
    store = Open();
    EXPECT_EQ(Get(*store, "old")->turns.back().body_digest, "one");
    EXPECT_EQ(Get(*store, "old")->turns.back().numerics_id, "avx2");
    store.reset();
    auto db = SqliteDb::Open(path_);
    EXPECT_EQ(*db->QueryInt("PRAGMA user_version"), kSessionSchemaVersion);
    EXPECT_EQ(*db->QueryInt("SELECT count(*) FROM sqlite_schema WHERE name = 'sessions_by_update'"),
              1);
  }
}

// If a step fails, the file does not change.
TEST_F(SqliteSessionStoreTest, AMigrationIsWholeOrNothing) {
  Open().reset();
  {
    auto db = SqliteDb::Open(path_);
    // the index of this step already exists
    ASSERT_TRUE(db->Execute("PRAGMA user_version = 1").ok());
  }
  EXPECT_FALSE(SqliteSessionStore::Open({.path = path_}).ok());
  auto db = SqliteDb::Open(path_);
  EXPECT_EQ(*db->QueryInt("PRAGMA user_version"), 1);
}

TEST_F(SqliteSessionStoreTest, AFullDiskFailsTheAppendAndKeepsTheRest) {
  auto store = Open(/*max_bytes=*/128 << 10);
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  AppendRequest huge = {.session_id = "s", .epoch = turn->epoch, .expected_length = 4};
  huge.output_ids.assign(100'000, 5);
  const absl::Status full = Append(*store, huge);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full;
  // The store still works, and contains nothing of the append that failed.
  EXPECT_EQ(Get(*store, "s")->info.token_count, 4);
  EXPECT_TRUE(Append(*store, {.session_id = "s",
                              .epoch = turn->epoch,
                              .expected_length = 4,
                              .output_ids = {11},
                              .finish = TurnFinish::kCancelled})
                  .ok());
}

// SQLite reports this as an I/O error. The test uses a limit of the file size in place of a quota,
// which it cannot set.
TEST_F(SqliteSessionStoreTest, AFileThatMayNotGrowIsAFullDisk) {
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, &before);
  rlimit usual = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  AppendRequest large = {.session_id = "s", .epoch = turn->epoch, .expected_length = 4};
  large.output_ids.assign(100'000, 5);
  const rlimit small = {.rlim_cur = 128 << 10, .rlim_max = usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status full = Append(*store, large);
  const auto read = Get(*store, "s");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full;
  EXPECT_TRUE(absl::StrContains(full.message(), "has reached its size limit")) << full;
  EXPECT_EQ(read->info.token_count, 4);
  EXPECT_TRUE(Append(*store, large).ok());
  EXPECT_TRUE(Verify(*store)->empty());
  sigaction(SIGXFSZ, &before, nullptr);
}

TEST_F(SqliteSessionStoreTest, AFileThatIsTakenAwayIsNoticedUntilItIsBack) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  HealthWatch health(store.get());
  EXPECT_TRUE(health.Await(StatusCode::kOk).ok());
  for (const char* suffix : {"", "-wal"}) {
    const std::string file = path_ + suffix;
    std::filesystem::rename(file, file + ".away");
    const absl::Status gone = health.Await(StatusCode::kUnavailable);
    EXPECT_TRUE(absl::StrContains(gone.message(), absl::StrCat(file, " was deleted"))) << gone;
    const absl::Status refused = Create(*store, "t").status();
    EXPECT_EQ(refused, gone);
    EXPECT_TRUE(Get(*store, "s").ok()) << "it can still be read";
    // Another file with the same name is not the store.
    std::ofstream(file) << "x";
    EXPECT_EQ(Create(*store, "t").status().code(), StatusCode::kUnavailable);
    std::filesystem::rename(file + ".away", file);
    EXPECT_TRUE(health.Await(StatusCode::kOk).ok());
  }
  EXPECT_TRUE(Create(*store, "t").ok());
}

// `cp` over the file changes neither its name nor its inode.
TEST_F(SqliteSessionStoreTest, AFileThatIsWrittenOverIsNoticedForGood) {
  for (const bool cut_log : {false, true}) {
    std::filesystem::remove(path_);
    auto store = Open();
    ASSERT_TRUE(Create(*store, "s").ok());
    HealthWatch health(store.get());
    EXPECT_TRUE(health.Await(StatusCode::kOk).ok());
    const std::string file = cut_log ? path_ + "-wal" : path_;
    if (cut_log) {
      std::filesystem::resize_file(file, 100);
    } else {
      std::fstream(file, std::ios::in | std::ios::out | std::ios::binary).seekp(5000) << "another";
    }
    const absl::Status damaged = health.Await(StatusCode::kUnavailable);
    EXPECT_TRUE(
        absl::StrContains(damaged.message(), absl::StrCat(file, " was truncated or overwritten")))
        << damaged;
    EXPECT_EQ(Create(*store, "t").status(), damaged);
  }
}

// A write can give a truncated file its old size again, so the next periodic check would come too
// late.
TEST_F(SqliteSessionStoreTest, RefusesTheNextWriteAfterAFileIsTruncated) {
  for (const char* suffix : {"", "-wal"}) {
    const std::string file = path_ + suffix;
    std::filesystem::remove(path_);
    auto store = Open();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(Create(*store, absl::StrCat("s", i)).ok()) << i;
    std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
    const absl::Status refused = Create(*store, "t").status();
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << refused;
    EXPECT_TRUE(absl::StrContains(refused.message(), absl::StrCat(file, " was truncated")))
        << refused;
  }
}

TEST_F(SqliteSessionStoreTest, NoticesADamagedLogAndDoesNotCopyItIntoTheFile) {
  for (const bool hole : {true, false}) {
    std::filesystem::remove(path_);
    std::vector<std::string> lines;
    auto store = Open();
    for (int i = 0; i < 100; ++i) ASSERT_TRUE(Create(*store, absl::StrCat("s", i)).ok()) << i;
    auto health = std::make_unique<HealthWatch>(store.get());
    EXPECT_TRUE(health->Await(StatusCode::kOk).ok());
    const std::string log = path_ + "-wal";
    const size_t size = std::filesystem::file_size(log);
    if (hole) {
      std::filesystem::resize_file(log, size / 2);
      std::filesystem::resize_file(log, size);
    } else {
      std::fstream(log, std::ios::in | std::ios::out | std::ios::binary).seekp(size / 2) << "other";
    }
    EXPECT_EQ(health->Await(StatusCode::kUnavailable).code(), StatusCode::kUnavailable);
    health.reset();
    store.reset();
    store =
        SqliteSessionStore::Open(
            {.path = path_, .log = [&lines](absl::string_view line) { lines.emplace_back(line); }})
            .value();
    ASSERT_EQ(lines.size(), 1);
    EXPECT_TRUE(absl::StrContains(lines[0], "transactions are lost (it had 100 sessions then)"))
        << lines[0];
    EXPECT_TRUE(Get(*store, "s20").ok()) << "it was before the damage";
  }
}

// The store's own checkpoints are not reported as changes of another program.
TEST_F(SqliteSessionStoreTest, AStoreKnowsItsOwnWritesFromOthers) {
  auto store = Open();
  HealthWatch health(store.get());
  for (int i = 0; i < 1500; ++i) ASSERT_TRUE(Create(*store, absl::StrCat("s", i)).ok()) << i;
  EXPECT_GT(std::filesystem::file_size(path_), 100'000) << "no checkpoint";
  EXPECT_LT(std::filesystem::file_size(path_ + "-wal"), 8'000'000);
  EXPECT_TRUE(health.Await(StatusCode::kOk).ok());
  EXPECT_TRUE(Create(*store, "last").ok());
}

// The disk has no space for one more byte. A call that frees space may use the reserve.
TEST_F(SqliteSessionStoreTest, ASessionCanBeDeletedWhenAFileMayNotGrow) {
  struct sigaction ignore = {}, before = {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignore, &before);
  rlimit usual = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  AppendRequest large = {.session_id = "s", .epoch = turn->epoch, .expected_length = 4};
  large.output_ids.assign(50'000, 5);
  large.finish = TurnFinish::kStop;
  ASSERT_TRUE(Append(*store, large).ok());
  // The log has its maximum size.
  const rlimit full = {.rlim_cur = std::filesystem::file_size(path_ + "-wal"),
                       .rlim_max = usual.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  const absl::Status created = Create(*store, "t").status();
  const absl::Status deleted = Delete(*store, "s");
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &usual), 0);
  EXPECT_EQ(created.code(), StatusCode::kResourceExhausted) << created;
  EXPECT_TRUE(deleted.ok()) << deleted;
  EXPECT_EQ(Get(*store, "s").status().code(), StatusCode::kNotFound);
  EXPECT_TRUE(Verify(*store)->empty());
  sigaction(SIGXFSZ, &before, nullptr);
}

// A child process appends tokens one by one, and reports each append that was acknowledged. It is
// killed in the middle. All appends that it has reported must be in the store.
TEST_F(SqliteSessionStoreTest, SurvivesKill) {
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
  EXPECT_EQ(log->turns[0].response, "a" + std::string(log->token_ids.size() - 4, 'y'));
  EXPECT_TRUE(Begin(*store, "s", "r2").ok());
}

TEST(MessageJsonTest, RoundTripsAndRefusesDamage) {
  const std::vector<StoredMessage> messages = {
      {.role = "tool", .content = "ä\"\n", .name = "n", .tool_call_id = "c"},
      {.role = "assistant", .content = "", .tool_calls_json = "[{}]"}};
  EXPECT_EQ(MessagesFromJson(MessagesToJson(messages)).value(), messages);
  for (const char* damaged :
       {"", "{}", "[1]", R"([{"role":1,"content":""}])", R"([{"role":"a"}])"}) {
    EXPECT_EQ(MessagesFromJson(damaged).status().code(), StatusCode::kDataLoss) << damaged;
  }
}

}  // namespace
}  // namespace tidepool::service
