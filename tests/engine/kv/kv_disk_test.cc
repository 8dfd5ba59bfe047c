#include "engine/kv/kv_disk.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/engine/kv/kv_disk_fixture.h"
#include "tests/fakes/manual_clock.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kBlockBytes = 6000;  // not a whole page
constexpr int64_t kTokens = kernels::kKvBlockTokens;

BlockKey Key(int number) { return {{static_cast<uint64_t>(number) + 1, 7}, number % 2}; }

std::vector<int32_t> Tokens(int number) {
  std::vector<int32_t> tokens(kTokens);
  std::iota(tokens.begin(), tokens.end(), number * 1000);
  return tokens;
}

std::vector<std::byte> Bytes(int number) {
  std::vector<std::byte> bytes(kBlockBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(number * 31 + i * 7);
  return bytes;
}

class KvDiskTest : public testing::Test {
 protected:
  void Start(int64_t slots, const std::string& identity = "model") {
    disk_.reset();
    disk_ = KvDisk::Open(fake_.Open(),
                         {.limit_bytes = LimitOf(slots, kBlockBytes),
                          .block_bytes = kBlockBytes,
                          .identity = identity},
                         &clock_)
                .value();
    ASSERT_EQ(disk_->slots(), slots);
  }

  bool Write(int number) { return disk_->Write(Key(number), Tokens(number), Bytes(number), {}); }
  void WriteAndWait(int number) {
    ASSERT_TRUE(Write(number));
    ASSERT_TRUE(Settle());
  }
  bool Settle() {
    return Eventually([&] { return disk_->Flush(absl::ZeroDuration()); });
  }
  bool Has(int number) const { return disk_->Has(Key(number), Tokens(number)); }

  // Returns "ok", "wrong" (other bytes than were written), "failed", or "missing".
  std::string Read(int number) {
    if (!disk_->StartRead(Key(number), Tokens(number), /*ticket=*/number)) return "missing";
    std::string answer;
    EXPECT_TRUE(Eventually([&] {
      for (const KvDisk::Read& read : disk_->TakeReads()) {
        EXPECT_EQ(read.ticket(), static_cast<uint64_t>(number));
        EXPECT_EQ(read.key(), Key(number));
        const bool same = read.ok() && read.bytes() == absl::MakeConstSpan(Bytes(number));
        answer = !read.ok() ? "failed" : same ? "ok" : "wrong";
      }
      return !answer.empty();
    }));
    return answer;
  }

  FakeDisk fake_;
  fakes::ManualClock clock_;
  std::unique_ptr<KvDisk> disk_;
};

TEST_F(KvDiskTest, ReturnsTheWrittenBlocks) {
  Start(8);
  EXPECT_FALSE(Has(0));
  EXPECT_EQ(Read(0), "missing");
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(Write(i));
  ASSERT_TRUE(Settle());
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(Has(i));
    EXPECT_EQ(Read(i), "ok");
  }
  // Blocks differ if their tokens or their groups of layers differ.
  EXPECT_FALSE(disk_->Has(Key(0), Tokens(1)));
  EXPECT_FALSE(disk_->Write(Key(0), Tokens(1), Bytes(1), {}));
  EXPECT_FALSE(disk_->Knows({Key(0).hash, 1}));
  EXPECT_EQ(Read(0), "ok");
  const KvDiskStats stats = disk_->stats();
  EXPECT_EQ(stats.blocks, 8);
  EXPECT_EQ(stats.bytes, 8 * 8192);
  EXPECT_EQ(stats.written_blocks, 8);
  EXPECT_EQ(stats.read_blocks, 9);
  EXPECT_EQ(stats.dropped_blocks + stats.damaged_blocks + stats.failed_writes, 0);
}

TEST_F(KvDiskTest, ReplacesTheLeastRecentlyUsed) {
  Start(4);
  for (int i = 0; i < 4; ++i) WriteAndWait(i);
  EXPECT_EQ(Read(0), "ok");  // used since
  WriteAndWait(1);           // it is already stored, so this only counts as a use
  EXPECT_EQ(disk_->stats().written_blocks, 4);
  WriteAndWait(4);
  WriteAndWait(5);
  EXPECT_TRUE(Has(0) && Has(1) && Has(4) && Has(5));
  EXPECT_FALSE(Has(2) || Has(3));
  EXPECT_EQ(Read(4), "ok");
}

TEST_F(KvDiskTest, BlocksSurviveARestart) {
  Start(4);
  for (int i = 0; i < 6; ++i) WriteAndWait(i);
  Start(4);
  EXPECT_EQ(disk_->stats().blocks, 4);
  for (int i = 2; i < 6; ++i) EXPECT_EQ(Read(i), "ok") << i;
  // The order is still known.
  Start(4);
  WriteAndWait(6);
  EXPECT_FALSE(Has(2));
  EXPECT_TRUE(Has(3));
}

// A changed order of use also survives.
TEST_F(KvDiskTest, TheOrderOfUseSurvivesARestart) {
  const std::vector<std::pair<std::string, std::function<void()>>> uses = {
      {"read", [this] { EXPECT_EQ(Read(0), "ok"); }},
      {"given up in memory", [this] { WriteAndWait(0); }},
      {"used in memory",
       [this] {
         disk_->NoteUse({Key(99), Key(0)});
       }},
  };
  for (const auto& [name, use] : uses) {
    Start(4, name);
    for (int i = 0; i < 4; ++i) WriteAndWait(i);
    use();
    Start(4, name);
    WriteAndWait(4);
    EXPECT_FALSE(Has(1)) << name;
    EXPECT_EQ(Read(0), "ok") << name;
  }
}

TEST_F(KvDiskTest, ManyUsesSurviveARestart) {
  Start(300);
  for (int i = 0; i < 300; ++i) WriteAndWait(i);
  std::vector<BlockKey> keys;
  for (int i = 149; i >= 0; --i) keys.push_back(Key(i));
  disk_->NoteUse(keys);
  Start(300);
  for (int i = 300; i < 450; ++i) WriteAndWait(i);
  for (int i = 0; i < 450; ++i) EXPECT_EQ(Has(i), i < 150 || i >= 300) << i;
  // The block that was named first is evicted first.
  WriteAndWait(450);
  EXPECT_FALSE(Has(149));
  EXPECT_TRUE(Has(148));
}

// A use of a block causes no write. Once a minute, all uses are written to the file. So a kill
// loses the uses of at most a minute.
TEST_F(KvDiskTest, UsesAreWrittenTogether) {
  Start(4);
  for (int i = 0; i < 4; ++i) WriteAndWait(i);
  const int before = fake_.writes();
  for (int i = 0; i < 100; ++i) disk_->NoteUse({Key(1), Key(0)});
  clock_.Advance(absl::Seconds(59));
  EXPECT_EQ(Read(2), "ok");  // the disk checks the time when it has work
  EXPECT_EQ(Read(2), "ok");
  EXPECT_EQ(fake_.writes(), before);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Read(2), "ok");
  ASSERT_TRUE(Eventually([&] { return fake_.writes() == before + 3; }));
  disk_->NoteUse({Key(3)});
  fake_.KillAfter(0);
  disk_.reset();
  fake_.KillAfter(1 << 30);
  Start(4);
  WriteAndWait(4);
  EXPECT_FALSE(Has(3));
  WriteAndWait(5);
  EXPECT_FALSE(Has(1));
  EXPECT_TRUE(Has(0) && Has(2));
}

TEST_F(KvDiskTest, UsesThatCannotBeWrittenCostNoBlock) {
  Start(4);
  for (int i = 0; i < 4; ++i) WriteAndWait(i);
  fake_.FailWrites(absl::UnavailableError("read-only"));
  disk_->NoteUse({Key(0), Key(1)});
  Start(4);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(Read(i), "ok") << i;
}

// If writes fail for a while, as on a full disk, they are repeated a minute later.
TEST_F(KvDiskTest, UsesThatCouldNotBeWrittenAreWrittenLater) {
  Start(4);
  for (int i = 0; i < 4; ++i) WriteAndWait(i);
  fake_.FailWrites(absl::ResourceExhaustedError("no space left"));
  disk_->NoteUse({Key(0), Key(1)});
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Read(2), "ok");  // the disk checks the time when it has work
  ASSERT_TRUE(Eventually([&] { return disk_->stats().failed_writes == 1; }));
  fake_.FailWrites(absl::OkStatus());
  const int before = fake_.writes();
  EXPECT_EQ(Read(3), "ok");
  EXPECT_EQ(Read(3), "ok");
  EXPECT_EQ(fake_.writes(), before);
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Read(3), "ok");
  ASSERT_TRUE(Eventually([&] { return fake_.writes() == before + 4; }));
  fake_.KillAfter(0);
  disk_.reset();
  fake_.KillAfter(1 << 30);
  Start(4);
  WriteAndWait(4);
  EXPECT_FALSE(Has(0));
  EXPECT_TRUE(Has(1) && Has(2) && Has(3));
}

TEST_F(KvDiskTest, EmptiesTheFileForAnotherModelOrSize) {
  Start(4);
  WriteAndWait(0);
  Start(4, "another model");
  EXPECT_EQ(disk_->stats().blocks, 0);
  WriteAndWait(1);
  Start(5, "another model");
  EXPECT_EQ(disk_->stats().blocks, 0);
  WriteAndWait(2);
  Start(5, "another model");
  EXPECT_EQ(Read(2), "ok");
}

TEST_F(KvDiskTest, DamagedBlocksAreNotFound) {
  Start(6);
  for (int i = 0; i < 6; ++i) WriteAndWait(i);
  const KvDiskLayout layout = {.block_bytes = kBlockBytes, .slots = 6};
  fake_.Flip(layout.slot_offset(0) + kBlockBytes - 1);
  EXPECT_EQ(Read(0), "failed");
  EXPECT_FALSE(Has(0));
  EXPECT_EQ(Read(1), "ok");
  EXPECT_EQ(disk_->stats().damaged_blocks, 1);
  WriteAndWait(0);  // the slot can be used again
  EXPECT_EQ(Read(0), "ok");
  // The file is damaged while it is closed: a block, an entry, or the end, which is truncated.
  disk_.reset();
  fake_.Flip(layout.slot_offset(1));
  fake_.Flip(layout.entry_offset(2) + 40);
  fake_.Cut(layout.slot_offset(5) + 100);
  Start(6);
  EXPECT_EQ(Read(0), "ok");
  EXPECT_EQ(Read(1), "failed");
  EXPECT_EQ(Read(2), "missing");
  EXPECT_EQ(Read(3), "ok");
  EXPECT_EQ(Read(5), "failed");
  EXPECT_EQ(Read(5), "missing");
}

// After each number of writes that reached the disk, a block is either complete or missing.
TEST_F(KvDiskTest, AKillLeavesWholeBlocks) {
  for (int writes = 0; writes < 16; ++writes) {
    fake_.KillAfter(1 << 30);
    Start(3, "of an earlier run");  // so that each run begins with an empty file
    Start(3);
    fake_.KillAfter(writes);
    for (int i = 0; i < 5; ++i) WriteAndWait(i);
    disk_.reset();
    fake_.KillAfter(1 << 30);
    Start(3);
    int whole = 0;
    for (int i = 0; i < 5; ++i) {
      if (!Has(i)) continue;
      EXPECT_EQ(Read(i), "ok") << i << " after " << writes;
      ++whole;
    }
    // Two writes per block, and one more if the slot had another block.
    EXPECT_EQ(whole, std::vector<int>({0, 0, 1, 1, 2, 2, 3, 2, 2, 3, 2, 2, 3, 3, 3, 3})[writes])
        << writes;
  }
}

TEST_F(KvDiskTest, DropsBlocksWhenTheDiskIsTooSlow) {
  Start(300);
  fake_.Hold();
  int taken = 0;
  for (int i = 0; i < 200; ++i) taken += Write(i) ? 1 : 0;
  EXPECT_EQ(taken, 64);  // the staging memory for writes
  EXPECT_EQ(disk_->stats().dropped_blocks, 136);
  EXPECT_FALSE(disk_->Flush(absl::ZeroDuration()));
  fake_.Release();
  ASSERT_TRUE(Settle());
  for (int i = 0; i < 200; ++i) EXPECT_EQ(Read(i), i < 64 ? "ok" : "missing") << i;
}

// An eviction waits a short time for the disk. After a timeout, later evictions do not wait. A
// final spill waits as long as necessary.
TEST_F(KvDiskTest, ALastSpillWaitsForTheDisk) {
  disk_ = KvDisk::Open(fake_.Open(),
                       {.limit_bytes = LimitOf(100, kBlockBytes), .block_bytes = kBlockBytes},
                       &base::Clock::Real())
              .value();
  fake_.Hold();
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(Write(i));
  EXPECT_FALSE(disk_->Write(Key(64), Tokens(64), Bytes(64), {.patience = absl::Milliseconds(1)}));
  std::thread disk([this] {
    absl::SleepFor(absl::Milliseconds(20));
    fake_.Release();
  });
  EXPECT_TRUE(
      disk_->Write(Key(65), Tokens(65), Bytes(65), {.patience = absl::Seconds(60), .newer = 0}));
  disk.join();
  ASSERT_TRUE(Settle());
  EXPECT_EQ(Read(65), "ok");
}

TEST_F(KvDiskTest, ReusesSlotsWhenTheDiskIsFull) {
  Start(4);
  WriteAndWait(0);
  WriteAndWait(1);
  fake_.FailWrites(absl::ResourceExhaustedError("no space left"));
  WriteAndWait(2);
  EXPECT_FALSE(Has(2));
  EXPECT_EQ(disk_->stats().failed_writes, 1);
  fake_.FailWrites(absl::OkStatus());
  // For some seconds no new writes are tried, and existing blocks can be read.
  WriteAndWait(3);
  EXPECT_FALSE(Has(0));
  EXPECT_TRUE(Has(1) && Has(3));
  clock_.Advance(absl::Seconds(11));
  WriteAndWait(4);
  EXPECT_TRUE(Has(1) && Has(3) && Has(4));
  EXPECT_EQ(Read(4), "ok");
}

// If replacing a block fails, all other blocks stay.
TEST_F(KvDiskTest, AFailingDiskKeepsItsBlocks) {
  Start(4);
  for (int i = 0; i < 4; ++i) WriteAndWait(i);
  fake_.FailWrites(absl::UnavailableError("read-only"));
  WriteAndWait(4);
  for (int i = 5; i < 20; ++i) EXPECT_FALSE(Write(i));
  EXPECT_TRUE(Has(1) && Has(2) && Has(3));
  fake_.FailWrites(absl::OkStatus());
  clock_.Advance(absl::Seconds(11));
  WriteAndWait(5);
  EXPECT_TRUE(Has(1) && Has(2) && Has(3) && Has(5));
}

TEST_F(KvDiskTest, FailedReadsAreReported) {
  Start(4);
  WriteAndWait(0);
  fake_.FailReads(absl::UnavailableError("the cable is out"));
  EXPECT_EQ(Read(0), "failed");
  EXPECT_EQ(disk_->stats().failed_reads, 1);
  EXPECT_EQ(disk_->stats().damaged_blocks, 0);
}

// A block that is waiting to be written can be read after the write, or not at all if the write
// fails.
TEST_F(KvDiskTest, ReadsFollowTheirWrites) {
  for (const bool fails : {false, true}) {
    Start(3, fails ? "fails" : "works");
    fake_.Hold();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(Write(i));
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(Has(i));
      ASSERT_TRUE(disk_->StartRead(Key(i), Tokens(i), i));
    }
    if (fails) fake_.FailWrites(absl::ResourceExhaustedError("no space left"));
    fake_.Release();
    int seen = 0;
    EXPECT_TRUE(Eventually([&] {
      for (const KvDisk::Read& read : disk_->TakeReads()) {
        EXPECT_EQ(read.ok(), !fails);
        EXPECT_TRUE(fails || read.bytes() == absl::MakeConstSpan(Bytes(seen)));
        ++seen;
      }
      return seen == 3;
    }));
    fake_.FailWrites(absl::OkStatus());
    clock_.Advance(absl::Seconds(11));
    WriteAndWait(3);
    EXPECT_EQ(Read(3), "ok");
    EXPECT_EQ(disk_->stats().blocks, fails ? 1 : 3);
  }
}

TEST_F(KvDiskTest, ReadersKeepABlock) {
  Start(2);
  WriteAndWait(0);
  WriteAndWait(1);
  fake_.Hold();
  ASSERT_TRUE(disk_->StartRead(Key(0), Tokens(0), 5));
  ASSERT_TRUE(disk_->StartRead(Key(1), Tokens(1), 6));
  EXPECT_FALSE(Write(2));  // both slots are being read
  disk_->Withdraw(6);
  EXPECT_TRUE(Write(2));  // the slot of key 1 is no longer being read
  fake_.Release();
  ASSERT_TRUE(Settle());
  EXPECT_TRUE(Eventually([&] {
    for (const KvDisk::Read& read : disk_->TakeReads()) {
      EXPECT_EQ(read.ticket(), 5u);
      EXPECT_EQ(read.bytes(), absl::MakeConstSpan(Bytes(0)));
      return true;
    }
    return false;
  }));
  EXPECT_TRUE(Has(0) && Has(2));
}

// The newest blocks of a final spill are evicted last, although they are written first.
TEST_F(KvDiskTest, ALastSpillKeepsTheOrderOfUse) {
  Start(4);
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(disk_->Write(Key(i), Tokens(i), Bytes(i), {.newer = i}));
  }
  ASSERT_TRUE(Settle());
  Start(4);
  WriteAndWait(10);
  WriteAndWait(11);
  EXPECT_TRUE(Has(0) && Has(1));
  EXPECT_FALSE(Has(2) || Has(3));
}

// Compares the disk with a map through random operations: each read returns what was written last.
TEST_F(KvDiskTest, RandomUse) {
  std::mt19937 random(1);
  Start(10);
  for (int i = 0; i < 3000; ++i) {
    const int number = static_cast<int>(random() % 25);
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
        Write(number);
        break;
      case 3:
        ASSERT_TRUE(Settle());
        ASSERT_LE(disk_->stats().blocks, 10);
        break;
      case 4:
        if (random() % 40 == 0) Start(10);
        break;
      case 5:
        disk_->NoteUse({Key(number)});
        break;
      default: {
        const std::string answer = Read(number);
        ASSERT_TRUE(answer == "ok" || answer == "missing") << answer;
      }
    }
  }
  EXPECT_EQ(disk_->stats().damaged_blocks, 0);
}

TEST(KvDiskOnAFileTest, KeepsBlocks) {
  const std::string path = testing::TempDir() + "/kv_disk_test.kv";
  std::filesystem::remove(path);
  const KvDiskOptions options = {
      .limit_bytes = LimitOf(5, kBlockBytes), .block_bytes = kBlockBytes, .identity = "m"};
  for (const bool second : {false, true}) {
    auto disk = KvDisk::Open(KvDiskFile::Open(path).value(), options, &base::Clock::Real());
    ASSERT_TRUE(disk.ok()) << disk.status();
    EXPECT_EQ((*disk)->stats().blocks, second ? 5 : 0);
    for (int i = 0; i < 5; ++i) (*disk)->Write(Key(i), Tokens(i), Bytes(i), {});
    ASSERT_TRUE((*disk)->Flush(absl::Seconds(60)));
    for (int i = 0; i < 5; ++i) ASSERT_TRUE((*disk)->StartRead(Key(i), Tokens(i), i));
    int seen = 0;
    EXPECT_TRUE(Eventually([&] {
      for (const KvDisk::Read& read : (*disk)->TakeReads()) {
        EXPECT_TRUE(read.ok());
        EXPECT_EQ(read.bytes(), absl::MakeConstSpan(Bytes(static_cast<int>(read.ticket()))));
        ++seen;
      }
      return seen == 5;
    }));
    EXPECT_GT((*disk)->read_bytes_per_second(), 0);
  }
  EXPECT_LE(std::filesystem::file_size(path), static_cast<uint64_t>(options.limit_bytes));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tidepool::engine
