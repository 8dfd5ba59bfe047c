// KV that is written to a disk and read back: cache, restores, and plans.
#include "engine/scheduler/kv_restores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/engine/scheduler/kv_restores_fixture.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kWindow = 40;

TEST_F(KvRestoresTest, EvictedBlocksAreFoundOnTheDisk) {
  for (const int64_t window : {int64_t{0}, kWindow}) {
    StartWithDisk(window > 0 ? 20 : 10,
                  window > 0 ? std::vector{Layer(0), Layer(window)} : std::vector{Layer(0)});
    const std::vector<int32_t> first = Tokens(8 * kTokens + 3, 1);
    Compute(first);
    EXPECT_EQ(cache_->NewLease("").FindPrefix(first).tokens, 8 * kTokens);
    EXPECT_TRUE(cache_->NewLease("").FindPrefix(first).on_disk.empty());
    for (int32_t other = 2; other < 5; ++other) {
      Compute(Tokens(9 * kTokens, other));
      ASSERT_TRUE(Settle());
    }
    EXPECT_EQ(cache_->NewLease("").CachedTokens(first), 0);
    KvLease lease = cache_->NewLease("");
    const KvPrefix prefix = lease.FindPrefix(first);
    EXPECT_EQ(prefix.memory_tokens, 0);
    EXPECT_EQ(prefix.tokens, 8 * kTokens) << window;
    // Layers with a window restore only the blocks that the next token attends to.
    EXPECT_EQ(prefix.on_disk.size(), window > 0 ? 8u + 2u : 8u);
    // A prefix with another salt is different.
    EXPECT_EQ(cache_->NewLease("salt").FindPrefix(first).tokens, 0);
    Stop();
    fake_.Cut(0);
  }
}

TEST_F(KvRestoresTest, OthersRunWhileASequenceWaitsForItsKv) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  Add({.name = "B", .prompt = 5});
  EXPECT_EQ(Step(), "B 0+5*");  // A's blocks are being read
  EXPECT_EQ(restores_->running(), 1);
  EXPECT_EQ(Step(), "B 5+1*");
  LetRead(3);
  EXPECT_EQ(Step(), "B 6+1*");
  LetRead(1);
  EXPECT_EQ(Step(), "A 128+8*, B 7+1*");
  EXPECT_EQ(restores_->running(), 0);
  EXPECT_EQ(sequences_["A"]->admission.cached_tokens, 4 * kTokens);
  EXPECT_EQ(restores_->stats().tokens, 4 * kTokens);
  EXPECT_EQ(restores_->stats().given_up, 0);
  EXPECT_EQ(Check(shared), 4 * kTokens - kTokens);  // all blocks except the one with the last token
  EXPECT_EQ(Step(), "A 136+1*, B 8+1*");
}

TEST_F(KvRestoresTest, OneReadServesAllWithThePrefix) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(16);
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  Add({.name = "B", .prompt = 8, .shared = shared});
  // A sequence that ends within the prefix only waits for its own part.
  Add({.name = "C", .prompt = 2, .shared = Tokens(2 * kTokens, 1)});
  EXPECT_EQ(Step(), "");
  EXPECT_EQ(restores_->running(), 1);
  LetRead(2);
  EXPECT_EQ(Step(), "C 64+2*");
  LetRead(2);
  EXPECT_EQ(Step(), "A 128+8*, B 128+8*, C 66+1*");
  EXPECT_EQ(disk_->stats().read_blocks, 4);
}

// Blocks that a restore releases cannot be used while running sequences hold them.
TEST_F(KvRestoresTest, BlocksSharedWithRunningSequencesDoNotCountAsFree) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(16);
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  Add({.name = "B", .prompt = 2, .shared = Tokens(2 * kTokens, 1)});
  EXPECT_EQ(Step(), "");
  LetRead(2);
  EXPECT_EQ(Step(), "B 64+2*");
  EXPECT_EQ(restores_->BlocksBelow(1), 0);
  LetRead(1);
  EXPECT_EQ(Step(), "B 66+1*");
  EXPECT_EQ(restores_->BlocksBelow(0), 0);
  EXPECT_EQ(restores_->BlocksBelow(1), 1);
  const int64_t free = cache_->blocks_free();
  EXPECT_TRUE(restores_->GiveBack(0));
  EXPECT_EQ(cache_->blocks_free(), free + 1);
}

TEST_F(KvRestoresTest, ComputesBlocksThatAreSlowerToRead) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  // One read measures the disk's speed. Here, this read takes ten seconds.
  fake_.Hold();
  ASSERT_TRUE(disk_->StartRead(cache_->NewLease("").FindPrefix(shared).on_disk[0].key,
                               absl::MakeConstSpan(shared).first(kTokens), 99));
  // When the thread waits for the disk, it has begun the read.
  ASSERT_TRUE(Eventually([&] { return fake_.waited_for(); }));
  clock_.Advance(absl::Seconds(10));
  LetRead(1);
  EXPECT_GT(disk_->read_bytes_per_second(), 0);
  scheduler_->SetRates({.prompt_rows_per_second = 1000});
  Add({.name = "A", .prompt = 8, .shared = shared});
  EXPECT_EQ(Step(), "A 0+40");
  EXPECT_EQ(restores_->stats().restores, 0);
}

TEST_F(KvRestoresTest, GivesUpOnADiskThatHangs) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  fake_.Hold();
  scheduler_->SetRates({.prompt_rows_per_second = 128});
  Add({.name = "A", .prompt = 8, .shared = shared});
  EXPECT_EQ(Plan(), "");
  Commit();
  EXPECT_EQ(scheduler_->NextDeadline(), absl::Seconds(1));  // the time that computing takes
  LetRead(2);
  EXPECT_EQ(Plan(absl::Milliseconds(999)), "");
  Commit();
  // The blocks that arrived are used.
  EXPECT_EQ(Plan(absl::Seconds(1)), "A 64+40");
  Commit();
  EXPECT_EQ(restores_->stats().given_up, 1);
  // The restore is not tried again.
  EXPECT_EQ(Plan(absl::Seconds(2)), "A 104+32*");
  Commit();
  fake_.Release();
}

// This is true even if computing takes long. Later sequences do not wait either.
TEST_F(KvRestoresTest, BeginsNoRestoreOnADiskThatHangs) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  fake_.Hold();
  scheduler_->SetRates({.prompt_rows_per_second = 1});
  Add({.name = "A", .prompt = 8, .shared = shared});
  EXPECT_EQ(Plan(), "");
  Commit();
  LetRead(1);
  EXPECT_EQ(Plan(absl::Seconds(4)), "");
  Commit();
  EXPECT_EQ(scheduler_->NextDeadline(), absl::Seconds(9));
  EXPECT_EQ(Plan(absl::Seconds(9)), "A 32+40");
  Commit();
  Add({.name = "B", .prompt = 3, .shared = Tokens(2 * kTokens, 2)});
  EXPECT_EQ(Plan(absl::Seconds(10)).substr(0, 10), "A 72+40, B");
  Commit();
  EXPECT_EQ(restores_->stats().restores, 1);
}

TEST_F(KvRestoresTest, ADamagedBlockIsComputedAgain) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  // Blocks are evicted from the end of a prefix, so the third block was the second to be written.
  const KvDiskLayout layout = {.block_bytes = static_cast<int64_t>(cache_->block_bytes()),
                               .slots = disk_->slots()};
  fake_.Flip(layout.slot_offset(1));
  Add({.name = "A", .prompt = 8, .shared = shared});
  EXPECT_EQ(Step(), "");
  ASSERT_TRUE(Eventually([&] {
    const std::string plan = Step();
    EXPECT_TRUE(plan.empty() || plan == "A 64+40") << plan;
    return !plan.empty();
  }));
  EXPECT_EQ(disk_->stats().damaged_blocks, 1);
  EXPECT_EQ(restores_->stats().given_up, 1);
}

TEST_F(KvRestoresTest, RunningSequencesComeFirst) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(8);
  Add({.name = "B", .prompt = kTokens - 1});
  EXPECT_EQ(Step(), absl::StrCat("B 0+", kTokens - 1, "*"));
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  EXPECT_EQ(Step(), "B 31+1*");
  LetRead(3);
  Step();
  EXPECT_EQ(restores_->running(), 1);
  // B grows into every block, so the restore releases its blocks.
  while (restores_->running() > 0 && sequences_["B"]->tokens.size() < 8 * kTokens) {
    ASSERT_EQ(Step().substr(0, 1), "B");
  }
  EXPECT_EQ(restores_->running(), 0);
  EXPECT_GE(sequences_["B"]->tokens.size(), 5u * kTokens);
  EXPECT_EQ(scheduler_->preemptions(), 0);
}

TEST_F(KvRestoresTest, DeadlinesCountTokensOnTheDisk) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  scheduler_->SetRates({.prompt_rows_per_second = 64});
  // Computing either of them would take at least a second.
  Add({.name = "A", .prompt = 8, .shared = shared, .deadline = absl::Milliseconds(900)});
  Add({.name = "B", .prompt = 136, .deadline = absl::Milliseconds(900)});
  EXPECT_EQ(Plan(), "B! DEADLINE_EXCEEDED");
  Commit();
}

TEST_F(KvRestoresTest, CachedBlocksSurviveARestart) {
  StartWithDisk(12);
  const std::vector<int32_t> first = Tokens(4 * kTokens + 1, 1);
  const std::vector<int32_t> second = Tokens(5 * kTokens + 1, 2);
  Compute(first);
  Compute(second);
  cache_->SpillCached(absl::Seconds(60));
  EXPECT_EQ(disk_->stats().written_blocks, 9);
  StartWithDisk(12);
  EXPECT_EQ(cache_->NewLease("").FindPrefix(first).on_disk.size(), 4u);
  EXPECT_EQ(cache_->NewLease("").FindPrefix(second).on_disk.size(), 5u);
}

TEST_F(KvRestoresTest, ASmallDiskKeepsTheLatestBlocks) {
  StartWithDisk(12, {Layer(0)}, /*disk_blocks=*/6);
  Compute(Tokens(4 * kTokens + 1, 1));
  Compute(Tokens(5 * kTokens + 1, 2));
  cache_->SpillCached(absl::Seconds(60));
  StartWithDisk(12, {Layer(0)}, /*disk_blocks=*/6);
  EXPECT_EQ(cache_->NewLease("").FindPrefix(Tokens(5 * kTokens + 1, 2)).tokens, 5 * kTokens);
  EXPECT_EQ(cache_->NewLease("").FindPrefix(Tokens(4 * kTokens + 1, 1)).tokens, kTokens);
}

// Prefixes that are often used in memory stay on the disk longer than those used once.
TEST_F(KvRestoresTest, UsesInMemoryCountOnTheDisk) {
  StartWithDisk(12, {Layer(0)}, /*disk_blocks=*/6);
  const std::vector<int32_t> first = Tokens(2 * kTokens + 1, 1);
  const std::vector<int32_t> second = Tokens(2 * kTokens + 1, 2);
  Compute(first);
  Compute(second);
  cache_->SpillCached(absl::Seconds(60));
  StartWithDisk(12, {Layer(0)}, /*disk_blocks=*/6);
  Compute(first);
  Compute(second);
  Add({.name = "A", .prompt = 5, .shared = Tokens(2 * kTokens, 1)});
  EXPECT_EQ(Step(), "A 64+5*");
  StartWithDisk(12, {Layer(0)}, /*disk_blocks=*/6);
  WriteOthers(4);
  EXPECT_EQ(cache_->NewLease("").FindPrefix(first).tokens, 2 * kTokens);
  EXPECT_EQ(cache_->NewLease("").FindPrefix(second).tokens, 0);
}

// A final spill also keeps the order of blocks that are already on the disk.
TEST_F(KvRestoresTest, ALastSpillKeepsTheOrderOfUse) {
  const std::vector<int32_t> first = Tokens(2 * kTokens + 1, 1);
  const std::vector<int32_t> second = Tokens(2 * kTokens + 1, 2);
  StartWithDisk(12, {Layer(0)}, /*disk_blocks=*/6);
  Compute(first);
  cache_->SpillCached(absl::Seconds(60));
  StartWithDisk(12, {Layer(0)}, /*disk_blocks=*/6);
  Compute(first);
  Compute(second);
  EXPECT_EQ(Check(first), 2 * kTokens);
  cache_->SpillCached(absl::Seconds(60));
  EXPECT_EQ(disk_->stats().written_blocks, 2);
  StartWithDisk(12, {Layer(0)}, /*disk_blocks=*/6);
  WriteOthers(4);
  EXPECT_EQ(cache_->NewLease("").FindPrefix(first).tokens, 2 * kTokens);
  EXPECT_EQ(cache_->NewLease("").FindPrefix(second).tokens, 0);
}

TEST_F(KvRestoresTest, RecentPrefixesIncludeTheDisk) {
  StartWithDisk(8);
  const std::vector<int32_t> first = Tokens(4 * kTokens + 1, 1);
  Compute(first);
  Compute(Tokens(8 * kTokens, 2));
  ASSERT_TRUE(Settle());
  EXPECT_EQ(cache_->NewLease("").CachedTokens(first), 0);
  const std::vector<uint64_t> digests = BlockDigests(first, "", "");
  const std::vector<uint64_t> recent = cache_->RecentPrefixes(10);
  EXPECT_EQ(std::count(recent.begin(), recent.end(), digests.back()), 1);
}

}  // namespace
}  // namespace tidepool::engine
