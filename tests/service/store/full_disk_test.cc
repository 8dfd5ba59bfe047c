// The store in a file, on a disk that has no space for one more byte.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "service/store/sqlite_session_store.h"
#include "tests/service/store/store_calls.h"

namespace {

std::atomic<int64_t> room{INT64_MAX / 2};  // how many bytes all files together may still grow

int64_t SizeOf(int file) {
  struct stat found = {};
  return fstat(file, &found) == 0 ? found.st_size : 0;
}

bool TakeRoom(int64_t bytes) {
  if (bytes <= 0) return true;
  if (room.fetch_sub(bytes) >= bytes) return true;
  room += bytes;
  return false;
}

}  // namespace

// Replaces libc's function, also for SQLite.
extern "C" ssize_t pwrite64(int file, const void* bytes, size_t size, off64_t at) {
  if (!TakeRoom(at + static_cast<int64_t>(size) - SizeOf(file))) {
    errno = ENOSPC;
    return -1;
  }
  return syscall(SYS_pwrite64, file, bytes, size, at);
}
extern "C" int ftruncate64(int file, off64_t size) noexcept {
  room += std::max<int64_t>(0, SizeOf(file) - size);
  return static_cast<int>(syscall(SYS_ftruncate, file, size));
}
extern "C" int truncate(const char* path, off_t size) noexcept {
  struct stat found = {};
  if (stat(path, &found) == 0) room += std::max<int64_t>(0, found.st_size - size);
  return static_cast<int>(syscall(SYS_truncate, path, size));
}
extern "C" int posix_fallocate(int file, off_t at, off_t size) {
  if (!TakeRoom(at + size - SizeOf(file))) return ENOSPC;
  return static_cast<int>(syscall(SYS_ftruncate, file, std::max<int64_t>(SizeOf(file), at + size)));
}

namespace tidepool::service {
namespace {

class FullDiskTest : public testing::Test {
 protected:
  FullDiskTest() {
    std::string folder = absl::StrCat(testing::TempDir(), "/full_XXXXXX");
    folder_ = mkdtemp(folder.data());
    path_ = (folder_ / "sessions.db").string();
  }
  ~FullDiskTest() override {
    room = INT64_MAX / 2;
    std::filesystem::remove_all(folder_);
  }

  static void AddSession(SessionStore* store, const std::string& id) {
    ASSERT_TRUE(Create(*store, id).ok());
    const auto turn = Begin(*store, id, "r1");
    AppendRequest append = FirstAppend(turn->epoch);
    append.session_id = id;
    append.output_ids.assign(20'000, 7);
    append.finish = TurnFinish::kStop;
    ASSERT_TRUE(Append(*store, append).ok());
  }

  std::filesystem::path folder_;
  std::string path_;
};

// No byte of the log is in the database file yet, and there is no space for it.
TEST_F(FullDiskTest, SessionsCanBeDeletedAndTheirRoomIsUsed) {
  auto store = SqliteSessionStore::Open({.path = path_}).value();
  for (int i = 0; i < 8; ++i) AddSession(store.get(), absl::StrCat("s", i));
  ASSERT_EQ(std::filesystem::file_size(path_ + "-reserve"), StoreFile::kReserveBytes);
  room = 0;
  EXPECT_EQ(Create(*store, "more").status().code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 7; ++i) {
    const absl::Status deleted = Delete(*store, absl::StrCat("s", i));
    EXPECT_TRUE(deleted.ok()) << i << ": " << deleted;
  }
  AddSession(store.get(), "more");
  EXPECT_TRUE(Get(*store, "s7").ok());
  EXPECT_EQ(*Count(*store), 2);
  EXPECT_TRUE(Verify(*store)->empty());
  store.reset();
  store = SqliteSessionStore::Open({.path = path_}).value();
  EXPECT_EQ(*Count(*store), 2);
  EXPECT_TRUE(Verify(*store)->empty());
}

}  // namespace
}  // namespace tidepool::service
