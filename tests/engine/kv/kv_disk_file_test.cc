// The file of a KvDisk: its layout, how it is opened, and its memory.
#include "engine/kv/kv_disk_file.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/kv/kv_disk.h"
#include "engine/kv/kv_disk_format.h"
#include "tests/engine/kv/kv_disk_fixture.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kTokens = kernels::kKvBlockTokens;

TEST(KvDiskFormatTest, HoldsAsManySlotsAsTheLimitAllows) {
  for (const int64_t block : {1, 4096, 5000, 1 << 20}) {
    for (const int64_t limit : {int64_t{20000}, int64_t{1} << 20, int64_t{123456789}}) {
      const absl::StatusOr<KvDiskLayout> layout = PlanKvDisk(limit, block);
      if (!layout.ok()) {
        EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
        EXPECT_NE(layout.status().message().find("--kv-disk"), absl::string_view::npos);
        EXPECT_LT(limit, (KvDiskLayout{.block_bytes = block, .slots = 1}.file_bytes()));
        continue;
      }
      EXPECT_LE(layout->file_bytes(), limit);
      EXPECT_GT((KvDiskLayout{.block_bytes = block, .slots = layout->slots + 1}.file_bytes()),
                limit);
      EXPECT_GE(layout->slot_offset(0), layout->entry_offset(layout->slots));
      EXPECT_EQ(layout->slot_offset(1) % kKvDiskPage, 0);
    }
  }
}

TEST(KvDiskFormatTest, EntriesComeBackAndNothingElseIsOne) {
  KvDiskEntry entry = {.key = {{0x0123456789abcdef, 0xfedcba9876543210}, 3},
                       .stamp = 77,
                       .checksum = 0xdeadbeefcafef00d};
  for (int i = 0; i < kTokens; ++i) entry.tokens[i] = i * 100000 - 5;
  const std::string bytes = EncodeKvDiskEntry(entry, 9);
  ASSERT_EQ(bytes.size(), static_cast<size_t>(kKvDiskEntryBytes));
  const auto parsed = ParseKvDiskEntry(bytes, 9);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->key, entry.key);
  EXPECT_EQ(parsed->tokens, entry.tokens);
  EXPECT_EQ(parsed->stamp, entry.stamp);
  EXPECT_EQ(parsed->checksum, entry.checksum);
  EXPECT_FALSE(ParseKvDiskEntry(bytes, 8).has_value());  // the entry belongs to another slot
  EXPECT_FALSE(ParseKvDiskEntry(bytes.substr(0, 255), 9).has_value());
  EXPECT_FALSE(ParseKvDiskEntry(std::string(kKvDiskEntryBytes, '\0'), 0).has_value());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string flipped = bytes;
    flipped[bit / 8] ^= static_cast<char>(1 << bit % 8);
    EXPECT_FALSE(ParseKvDiskEntry(flipped, 9).has_value()) << bit;
  }
}

int64_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

// Uses numbers of blocks just above those at which hash tables grow.
TEST(KvDiskMemoryTest, IsAtMostKvDiskMemoryBytes) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's heap is another one";
#endif
  for (const int64_t slots : {14337, 28673, 50000}) {
    const KvDiskLayout layout = {.block_bytes = 4096, .slots = slots};
    FakeDisk fake;
    const auto file = fake.Open();
    ASSERT_TRUE(file->WriteSmall(0, EncodeKvDiskHeader(layout, "m")).ok());
    std::vector<BlockKey> keys;
    std::string table;
    for (int64_t slot = 0; slot < slots; ++slot) {
      keys.push_back({{static_cast<uint64_t>(slot), 5}, 0});
      table += EncodeKvDiskEntry({.key = keys.back()}, slot);
    }
    ASSERT_TRUE(file->WriteSmall(kKvDiskPage, table).ok());
    const KvDiskOptions options = {
        .limit_bytes = layout.file_bytes(), .block_bytes = 4096, .identity = "m"};
    const int64_t before = HeapBytes();
    const auto disk = KvDisk::Open(fake.Open(), options, &base::Clock::Real());
    ASSERT_TRUE(disk.ok()) << disk.status();
    ASSERT_EQ((*disk)->stats().blocks, slots);
    (*disk)->NoteUse(keys);
    const int64_t taken = HeapBytes() - before;
    EXPECT_LE(taken, slots * KvDisk::kIndexBytes) << slots;
    EXPECT_GE(taken, slots * KvDisk::kIndexBytes / 2) << slots;
    EXPECT_GE(KvDiskMemoryBytes(layout), taken + 128 * 4096) << slots;  // with staging
  }
}

class KvDiskFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / "kv_disk_file_test";
    std::filesystem::remove_all(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(KvDiskFileTest, IsMadeForItsOwnerAndLocked) {
  const std::string path = folder_ / "made" / "model.kv";
  auto file = KvDiskFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  struct stat status = {};
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const auto again = KvDiskFile::Open(path);
  EXPECT_EQ(again.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(again.status().message().find("--cache-dir"), absl::string_view::npos);
  file->reset();
  EXPECT_TRUE(KvDiskFile::Open(path).ok());
}

TEST_F(KvDiskFileTest, ErrorsNameThePath) {
  std::filesystem::create_directories(folder_ / "a.kv");
  std::filesystem::create_symlink("elsewhere", folder_ / "link.kv");
  ASSERT_EQ(mkfifo((folder_ / "pipe.kv").c_str(), 0600), 0);
  for (const char* name : {"a.kv", "link.kv", "pipe.kv"}) {
    const auto opened = KvDiskFile::Open(folder_ / name);
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_NE(opened.status().message().find(name), absl::string_view::npos) << opened.status();
  }
  const auto inside_file = KvDiskFile::Open("/dev/null/model.kv");
  EXPECT_EQ(inside_file.status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidepool::engine
