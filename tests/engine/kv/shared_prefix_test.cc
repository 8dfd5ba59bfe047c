// Which cached blocks are evicted first: a prefix that others will use keeps the blocks of full
// groups and the tail of window groups.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/kv/block_pool.h"
#include "engine/kv/kv_cache.h"
#include "tests/engine/kv/kv_cache_fixture.h"

namespace tidepool::engine {
namespace {

// A cache for a model with one full group and two window groups. The system prompt has 20 blocks.
class SharedPromptTest : public testing::Test {
 protected:
  static constexpr int64_t kShared = 20;  // blocks
  static constexpr int64_t kBlocks = 150;

  // Returns a prompt of `blocks` blocks and one token, which begins with the system prompt.
  static std::vector<int32_t> Prompt(int64_t blocks, int32_t own) {
    std::vector<int32_t> tokens = Tokens(kShared * kTokens);
    const std::vector<int32_t> rest = Tokens((blocks - kShared) * kTokens + 1, 1000 * own);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return tokens;
  }

  // Computes all tokens except the last one, in chunks of two blocks. Returns the number of cached
  // tokens.
  static int64_t Compute(KvLease* lease, const std::vector<int32_t>& tokens) {
    const int64_t cached = lease->AttachPrefix(tokens);
    const auto slots = static_cast<int64_t>(tokens.size()) - 1;
    for (int64_t at = cached; at < slots;) {
      at = std::min(slots, at + 2 * kTokens);
      auto space = lease->Reserve(at);
      EXPECT_TRUE(space.has_value()) << at;
      if (!space.has_value()) break;
      space->Keep();
      lease->Commit(absl::MakeSpan(tokens).first(at));
    }
    return cached;
  }

  // Runs `count` sequences, one after the other. Each has a prompt of 7 blocks and 13 blocks of
  // output.
  void Pressure(int count) {
    for (int i = 0; i < count; ++i) {
      KvLease lease = cache_->NewLease("", 7 * kTokens);
      EXPECT_EQ(Compute(&lease, Tokens(20 * kTokens + 1, 1000 * ++others_)), 0);
    }
  }

  int64_t CachedOf(const std::vector<int32_t>& tokens) {
    return cache_->NewLease("").CachedTokens(tokens);
  }

  std::unique_ptr<KvCache> cache_ = MakeCache({Full(), Window(100), Window(99)}, kBlocks);
  int32_t others_ = 1000;
};

// 100 sequences take 20 times the cache's memory.
TEST_F(SharedPromptTest, IsFoundWhileASequenceUsesIt) {
  {
    KvLease first = cache_->NewLease("", 40 * kTokens);
    EXPECT_EQ(Compute(&first, Prompt(40, 1)), 0);
  }
  KvLease user = cache_->NewLease("", 23 * kTokens);
  EXPECT_EQ(Compute(&user, Prompt(40, 2)), kShared * kTokens);
  Pressure(100);
  EXPECT_EQ(CachedOf(Prompt(22, 3)), kShared * kTokens);
  // The cached tail of the window groups does not count as used: its blocks can be allocated.
  EXPECT_EQ(cache_->blocks_free(), kBlocks - user.blocks_held());
  KvLease all = cache_->NewLease("");
  EXPECT_TRUE(all.Reserve(cache_->blocks_free() / 3 * kTokens).has_value());
  EXPECT_EQ(CachedOf(Prompt(22, 3)), 0);
}

TEST_F(SharedPromptTest, IsFoundAsLongAsItsUsersComeBackInTime) {
  for (int i = 0; i < 20; ++i) {
    KvLease user = cache_->NewLease("", 22 * kTokens);
    EXPECT_EQ(Compute(&user, Prompt(26, i)), i == 0 ? 0 : kShared * kTokens) << i;
    user.Reset();
    Pressure(2);
  }
}

// The blocks of full groups and the tail of window groups are evicted at the same time. Each kind
// is useless without the other.
TEST_F(SharedPromptTest, IsEvictedAsAWhole) {
  {
    KvLease user = cache_->NewLease("", 22 * kTokens);
    Compute(&user, Prompt(40, 1));
    KvLease other = cache_->NewLease("", 22 * kTokens);
    EXPECT_EQ(Compute(&other, Prompt(40, 2)), kShared * kTokens);
  }
  int64_t cached = CachedOf(Prompt(22, 3));
  EXPECT_EQ(cached, kShared * kTokens);
  int rounds = 0;
  for (; cached > 0; ++rounds) {
    ASSERT_LT(rounds, 10);
    Pressure(1);
    cached = CachedOf(Prompt(22, 3));
    EXPECT_TRUE(cached == 0 || cached == kShared * kTokens) << cached;
  }
  EXPECT_GE(rounds, 2);
}

// The first sequence's tail is lost, because nothing shows where the shared part ends. The second
// sequence shows it.
TEST_F(SharedPromptTest, IsComputedTwiceAtMost) {
  {
    KvLease first = cache_->NewLease("", 40 * kTokens);
    Compute(&first, Prompt(40, 1));
    Pressure(30);
    EXPECT_EQ(CachedOf(Prompt(22, 2)), 0);
    KvLease second = cache_->NewLease("", 22 * kTokens);
    EXPECT_EQ(Compute(&second, Prompt(26, 2)), 0);
  }
  Pressure(1);
  EXPECT_EQ(CachedOf(Prompt(22, 3)), kShared * kTokens);
}

// Whatever its length, the next turn of a session finds all full blocks of the last one.
TEST_F(SharedPromptTest, ASequenceIsFoundAtItsEnd) {
  for (int64_t length = 300; length < 400; ++length) {
    cache_ = MakeCache({Full(), Window(100), Window(99)}, kBlocks);
    const std::vector<int32_t> tokens = Tokens(length, 5000);
    {
      KvLease lease = cache_->NewLease("", 20);
      for (int64_t at = 1; at <= length; ++at) {
        lease.Reserve(at)->Keep();
        lease.Commit(absl::MakeSpan(tokens).first(at));
        EXPECT_LE(lease.blocks_held(), cache_->BlocksFor(at, 1));
      }
    }
    Pressure(2);
    std::vector<int32_t> next = tokens;
    next.resize(length + 40);
    EXPECT_EQ(CachedOf(next), length / kTokens * kTokens);
  }
}

// The next request of a chat may lack a part of the previous output.
TEST_F(SharedPromptTest, APromptIsFoundAgainWithoutItsOutput) {
  const std::vector<int32_t> prompt = Tokens(10 * kTokens, 5000);
  std::vector<int32_t> tokens = prompt;
  const std::vector<int32_t> output = Tokens(20 * kTokens + 1, 7000);
  tokens.insert(tokens.end(), output.begin(), output.end());
  {
    KvLease lease = cache_->NewLease("", prompt.size());
    Compute(&lease, tokens);
  }
  Pressure(1);
  std::vector<int32_t> again = prompt;
  again.insert(again.end(), {1, 2, 3});
  EXPECT_EQ(CachedOf(again), 10 * kTokens);
  again.resize(8 * kTokens);
  EXPECT_EQ(CachedOf(again), 7 * kTokens);
  // The whole sequence is also found.
  EXPECT_EQ(CachedOf(tokens), 30 * kTokens);
}

TEST(BlockPoolTest, EvictsPassedBlocksThenBoundariesThenWantedOnes) {
  BlockPool pool(8);
  const std::vector<int32_t> tokens = Tokens(kTokens);
  const auto key = [](int32_t block) {
    return BlockKey{.hash = {1, static_cast<uint64_t>(block)}};
  };
  for (int i = 0; i < 8; ++i) {
    const int32_t block = pool.Allocate();
    pool.Index(block, key(block), tokens);
  }
  pool.Want(key(3));
  for (const int32_t block : {3, 0, 1}) pool.Release(block, BlockValue::kBoundary);
  for (const int32_t block : {6, 7, 2}) pool.Release(block, BlockValue::kPassed);
  for (const int32_t block : {4, 5}) pool.Release(block, BlockValue::kPassedOutput);
  EXPECT_EQ(pool.CachedBlocks(), (std::vector<int32_t>{3, 1, 0, 2, 7, 6, 4, 5}));
  pool.Want(key(1));
  pool.Unwant(key(1));  // as if it was released again
  pool.Want(key(6));
  std::vector<int32_t> evicted;
  for (int i = 0; i < 8; ++i) {
    const int32_t next = pool.NextEvicted();
    evicted.push_back(pool.Allocate());
    EXPECT_EQ(evicted.back(), next);
  }
  // When 0 is evicted, the passed block 2 is less than a quarter of the cached blocks.
  EXPECT_EQ(evicted, (std::vector<int32_t>{5, 4, 7, 0, 2, 1, 3, 6}));
  EXPECT_EQ(pool.NextEvicted(), kNoBlock);
  EXPECT_EQ(pool.cached(), 0);
}

TEST(BlockPoolTest, ABlockOfABoundaryRemainsOne) {
  BlockPool pool(2);
  const BlockKey key = {.hash = {1, 2}};
  const int32_t block = pool.Allocate();
  pool.Index(block, key, Tokens(kTokens));
  pool.AddHolder(block);
  pool.Release(block, BlockValue::kBoundary);
  pool.Release(block, BlockValue::kPassed);
  const int32_t other = pool.Allocate();
  pool.Index(other, {.hash = {3, 4}}, Tokens(kTokens, 9));
  pool.Release(other, BlockValue::kPassed);
  EXPECT_EQ(pool.NextEvicted(), other);
}

BlockKey KeyOf(uint64_t content) { return {.hash = {1, content}}; }

// Caches a block with this content.
int32_t AddBlock(uint64_t content, BlockValue value, BlockPool* pool) {
  const int32_t block = pool->Allocate();
  pool->Index(block, KeyOf(content), Tokens(kTokens));
  pool->Release(block, value);
  return block;
}

TEST(BlockPoolTest, SpareBlocksAreEvictedFirst) {
  BlockPool pool(4);
  const int32_t passed = AddBlock(1, BlockValue::kPassed, &pool);
  const int32_t boundary = AddBlock(2, BlockValue::kBoundary, &pool);
  const int32_t older = AddBlock(3, BlockValue::kSpare, &pool);
  const int32_t newer = AddBlock(4, BlockValue::kSpare, &pool);
  EXPECT_EQ(pool.CachedBlocks(), (std::vector<int32_t>{boundary, passed, newer, older}));
  for (const int32_t expected : {older, newer, passed, boundary}) {
    EXPECT_EQ(pool.NextEvicted(), expected);
    EXPECT_EQ(pool.Allocate(), expected);
  }
}

TEST(BlockPoolTest, ASpareBlockEvictsOnlySpareOnes) {
  BlockPool pool(8);
  const int32_t spare = AddBlock(1, BlockValue::kSpare, &pool);
  AddBlock(2, BlockValue::kPassed, &pool);
  AddBlock(3, BlockValue::kBoundary, &pool);
  // No block is evicted, because less than a quarter of all blocks are spare.
  EXPECT_EQ(pool.NextEvicted(BlockUse::kSpare), kNoBlock);
  const int32_t second = pool.Allocate(BlockUse::kSpare);
  pool.Index(second, KeyOf(4), Tokens(kTokens));
  pool.Release(second, BlockValue::kSpare);
  EXPECT_EQ(pool.NextEvicted(BlockUse::kSpare), spare);
  EXPECT_EQ(pool.Allocate(BlockUse::kSpare), spare);
  EXPECT_EQ(pool.NextEvicted(), kNoBlock);
  for (int i = 0; i < 4; ++i) pool.Allocate();
  EXPECT_EQ(pool.Allocate(BlockUse::kSpare), second);
  EXPECT_EQ(pool.NextEvicted(BlockUse::kSpare), kNoBlock);
  EXPECT_EQ(pool.Allocate(BlockUse::kSpare), kNoBlock);
  EXPECT_EQ(pool.cached(), 2);
}

TEST(BlockPoolTest, ASupersededBlockIsSpareUnlessTwoSequencesBeganThere) {
  BlockPool pool(4);
  const int32_t boundary = AddBlock(1, BlockValue::kBoundary, &pool);
  const int32_t shared = AddBlock(2, BlockValue::kBoundary, &pool);
  const int32_t once = AddBlock(3, BlockValue::kBoundary, &pool);
  for (const uint64_t content : {2, 2, 3}) pool.AddStart(KeyOf(content));
  for (const uint64_t content : {1, 2, 3, 4}) pool.Supersede(KeyOf(content));
  EXPECT_EQ(pool.CachedBlocks(), (std::vector<int32_t>{shared, once, boundary}));
  EXPECT_EQ(pool.ValueOf(shared), BlockValue::kBoundary);
  EXPECT_EQ(pool.ValueOf(once), BlockValue::kSpare);
  // Another sequence continues after the block `once`.
  pool.AddHolder(once);
  pool.Release(once, BlockValue::kBoundary);
  EXPECT_EQ(pool.CachedBlocks(), (std::vector<int32_t>{once, shared, boundary}));
  // If its content changes, a block has no starts.
  for (int i = 0; i < 4; ++i) pool.Allocate();
  pool.Index(shared, KeyOf(2), Tokens(kTokens));
  pool.Release(shared, BlockValue::kBoundary);
  pool.Supersede(KeyOf(2));
  EXPECT_EQ(pool.ValueOf(shared), BlockValue::kSpare);
}

}  // namespace
}  // namespace tidepool::engine
