// The effect of --durability: how often the store in a file calls fsync.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/store/sqlite_session_store.h"
#include "tests/service/store/store_calls.h"

namespace {
std::atomic<int> syncs{0};
}  // namespace

// Replaces libc's functions, also for SQLite. They make the same system calls and count them.
extern "C" int fsync(int fd) {
  ++syncs;
  return static_cast<int>(syscall(SYS_fsync, fd));
}
extern "C" int fdatasync(int fd) {
  ++syncs;
  return static_cast<int>(syscall(SYS_fdatasync, fd));
}

namespace tidepool::service {
namespace {

class DurabilityTest : public testing::Test {
 protected:
  DurabilityTest() {
    const std::string name = testing::UnitTest::GetInstance()->current_test_info()->name();
    folder_ = std::filesystem::path(testing::TempDir()) / absl::StrCat(name, "_", getpid());
    std::filesystem::create_directories(folder_);
  }
  ~DurabilityTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SessionStore> OpenWithTurn(Durability durability) {
    auto store =
        SqliteSessionStore::Open({.path = folder_ / "sessions.db", .durability = durability});
    EXPECT_TRUE(store.ok()) << store.status();
    EXPECT_TRUE(Create(**store, "s").ok());
    epoch_ = Begin(**store, "s", "r1")->epoch;
    EXPECT_TRUE(Append(**store, FirstAppend(epoch_)).ok());
    return *std::move(store);
  }

  AppendRequest OneToken(int64_t number) {
    return {.session_id = "s",
            .epoch = epoch_,
            .expected_length = 4 + number,
            .output_ids = {100},
            .output_text = "x"};
  }

  std::filesystem::path folder_;
  int64_t epoch_ = 0;
};

TEST_F(DurabilityTest, PowerWaitsForTheDiskAtEachAppend) {
  auto store = OpenWithTurn(Durability::kPower);
  for (int i = 0; i < 5; ++i) {
    const int before = syncs;
    ASSERT_TRUE(Append(*store, OneToken(i)).ok());
    EXPECT_GT(syncs, before) << "append " << i;
  }
}

TEST_F(DurabilityTest, ProcessWaitsForNoDisk) {
  auto store = OpenWithTurn(Durability::kProcess);
  const int before = syncs;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(Append(*store, OneToken(i)).ok());
  EXPECT_EQ(syncs, before);
}

TEST_F(DurabilityTest, ChangesThatWaitTogetherAreKeptTogether) {
  auto store = OpenWithTurn(Durability::kPower);
  const int before = syncs;
  std::vector<StatusAnswer> answers(500);
  for (int i = 0; i < 500; ++i) store->Append(OneToken(i), answers[i].Taker());
  for (StatusAnswer& answer : answers) ASSERT_TRUE(answer.Get().ok());
  // Many calls arrive while the disk writes the first one.
  EXPECT_LT(syncs - before, 250);
}

}  // namespace
}  // namespace tidepool::service
