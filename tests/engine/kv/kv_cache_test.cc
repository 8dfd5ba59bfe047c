#include "engine/kv/kv_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv/block_pool.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kTokens = kernels::kKvBlockTokens;

KvSpec Full() { return {.kv_heads = 2, .k_dim = 4, .v_dim = 4, .dtype = kernels::DType::kF16}; }

KvSpec Window(int64_t window) {
  KvSpec spec = Full();
  spec.kind = KvKind::kWindow;
  spec.window = window;
  return spec;
}

// A cache of that many blocks for a model of these layers.
std::unique_ptr<KvCache> MakeCache(const std::vector<KvSpec>& layers, int64_t blocks) {
  auto probe = KvCache::Create(layers, {.memory_bytes = 1 << 20});
  const size_t bytes = blocks * (*probe)->block_bytes();
  return KvCache::Create(layers, {.memory_bytes = bytes, .seed = "seed"}).value();
}

std::vector<int32_t> Tokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// Reserves and commits all of `tokens`.
void Fill(KvLease* lease, const std::vector<int32_t>& tokens) {
  auto space = lease->Reserve(tokens.size());
  ASSERT_TRUE(space.has_value());
  space->Keep();
  lease->Commit(tokens);
}

TEST(KvCacheTest, LayersOfAGroupAreContiguousInABlock) {
  auto cache = MakeCache({Full(), Window(64), Full(), Window(64)}, 10);
  const KvView& view = cache->view();
  EXPECT_EQ(cache->groups(), 2);
  EXPECT_EQ(view.group_of_layer, (std::vector<int>{0, 1, 0, 1}));
  const size_t keys = 2 * 4 * kTokens * 2;  // bytes, and as many of values
  EXPECT_EQ(cache->block_bytes(), 4 * keys);
  EXPECT_EQ(view.layers[0].k_offset, 0u);
  EXPECT_EQ(view.layers[0].v_offset, keys);
  EXPECT_EQ(view.layers[2].k_offset, 2 * keys);
  EXPECT_EQ(view.layers[2].v_offset, 3 * keys);
  EXPECT_EQ(view.layers[1].k_offset, 0u);
  EXPECT_EQ(view.layers[0].arena, view.layers[1].arena);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.layers[0].arena) % 64, 0u);
}

// Gemma 3 1B: 22 layers with a window, 4 without. A block for 22 layers would waste 82 % in groups
// of 4.
TEST(KvCacheTest, GroupsAreOfEqualSize) {
  std::vector<KvSpec> layers;
  for (int i = 0; i < 26; ++i) layers.push_back((i + 1) % 6 == 0 ? Full() : Window(64));
  auto cache = MakeCache(layers, 30);
  const size_t layer = 4 * 4 * kTokens * 2;
  EXPECT_EQ(cache->groups(), 13);
  EXPECT_EQ(cache->block_bytes(), 2 * layer);
  std::vector<int> count(cache->groups());
  for (const int group : cache->view().group_of_layer) ++count[group];
  EXPECT_EQ(count, std::vector<int>(13, 2));
  // 29 and 5 layers (Gemma 3 4B): one place of 35 stays empty.
  layers.clear();
  for (int i = 0; i < 34; ++i) layers.push_back((i + 1) % 6 == 0 ? Full() : Window(64));
  auto other = MakeCache(layers, 30);
  EXPECT_EQ(other->groups(), 7);
  EXPECT_EQ(other->block_bytes(), 5 * layer);
}

// The two full groups need a block each per 32 tokens, and the eleven others a window.
TEST(KvCacheTest, CapacityCountsWindows) {
  std::vector<KvSpec> layers;
  for (int i = 0; i < 26; ++i) layers.push_back((i + 1) % 6 == 0 ? Full() : Window(64));
  const int64_t windows = 11 * (64 / kTokens + 1 + 1);  // with a step of 32
  const size_t bytes = KvBlockBytes(layers) * (windows + 2 * 100);
  EXPECT_EQ(KvCapacityTokens(layers, bytes, 32), 100 * kTokens);
  auto cache = KvCache::Create(layers, {.memory_bytes = bytes});
  ASSERT_TRUE(cache.ok()) << cache.status();
  KvLease lease = (*cache)->NewLease("");
  const std::vector<int32_t> tokens = Tokens(100 * kTokens);
  for (int64_t slots = 32; slots <= 100 * kTokens; slots += 32) {
    auto space = lease.Reserve(slots);
    ASSERT_TRUE(space.has_value()) << slots;
    space->Keep();
    lease.Commit(absl::MakeSpan(tokens).first(slots));
  }
}

TEST(KvCacheTest, RefusesMemoryForLessThanABlock) {
  const auto cache = KvCache::Create({Full()}, {.memory_bytes = 100});
  EXPECT_EQ(cache.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(cache.status().message().find("--kv-memory"), std::string::npos);
}

TEST(KvCacheTest, CapacityTokensFitACacheOfThatSize) {
  for (const std::vector<KvSpec>& layers :
       {std::vector<KvSpec>{Full()}, {Full(), Full()}, {Full(), Window(64), Full()}}) {
    for (const size_t bytes : {size_t{1} << 12, size_t{1} << 16, size_t{100000}}) {
      const auto cache = KvCache::Create(layers, {.memory_bytes = bytes});
      ASSERT_TRUE(cache.ok()) << cache.status();
      EXPECT_EQ(KvCapacityTokens(layers, bytes, 1 << 20),
                (*cache)->blocks_total() / (*cache)->groups() * kTokens);
    }
    EXPECT_EQ(KvCapacityTokens(layers, 100, 1 << 20), 0);
  }
}

TEST(KvCacheTest, AReservationReturnsItsBlocksUnlessKept) {
  auto cache = MakeCache({Full()}, 4);
  KvLease lease = cache->NewLease("");
  {
    auto space = lease.Reserve(2 * kTokens + 1);
    ASSERT_TRUE(space.has_value());
    EXPECT_EQ(cache->blocks_free(), 1);
    EXPECT_EQ(lease.Tables(2 * kTokens + 1)[0].size(), 3u);
  }
  EXPECT_EQ(cache->blocks_free(), 4);
  EXPECT_EQ(lease.blocks_held(), 0);
  EXPECT_FALSE(lease.Reserve(4 * kTokens + 1).has_value());
  EXPECT_EQ(cache->blocks_free(), 4);
  lease.Reserve(kTokens)->Keep();
  EXPECT_EQ(cache->blocks_free(), 3);
  lease.Reset();
  EXPECT_EQ(cache->blocks_free(), 4);
}

TEST(KvCacheTest, BlocksOfLiveLeasesAreDistinct) {
  auto cache = MakeCache({Full(), Window(40)}, 20);
  KvLease a = cache->NewLease("");
  KvLease b = cache->NewLease("");
  a.Reserve(5 * kTokens)->Keep();
  b.Reserve(5 * kTokens)->Keep();
  std::set<int32_t> seen;
  for (const KvLease* lease : {&a, &b}) {
    for (const auto& table : lease->Tables(5 * kTokens)) seen.insert(table.begin(), table.end());
  }
  EXPECT_EQ(seen.size(), 20u);
  EXPECT_EQ(cache->blocks_free(), 0);
}

TEST(KvCacheTest, FindsPrefixesInWholeBlocksWithoutTheLastToken) {
  auto cache = MakeCache({Full()}, 10);
  const std::vector<int32_t> tokens = Tokens(2 * kTokens);
  std::vector<int32_t> table;
  {
    KvLease lease = cache->NewLease("");
    Fill(&lease, tokens);
    table.assign(lease.Tables(2 * kTokens)[0].begin(), lease.Tables(2 * kTokens)[0].end());
  }
  EXPECT_EQ(cache->blocks_free(), 10);
  EXPECT_EQ(cache->blocks_cached(), 2);

  KvLease same = cache->NewLease("");
  EXPECT_EQ(same.AttachPrefix(tokens), kTokens);  // the last token must be computed
  EXPECT_EQ(same.Tables(kTokens)[0][0], table[0]);
  std::vector<int32_t> longer = tokens;
  longer.push_back(7);
  KvLease next = cache->NewLease("");
  EXPECT_EQ(next.AttachPrefix(longer), 2 * kTokens);
  EXPECT_EQ(next.Tables(2 * kTokens)[0][1], table[1]);
  EXPECT_EQ(cache->blocks_cached(), 0);  // all in use

  std::vector<int32_t> other = longer;
  other[kTokens + 3] = 999;
  KvLease half = cache->NewLease("");
  EXPECT_EQ(half.AttachPrefix(other), kTokens);
  other[0] = 999;
  KvLease none = cache->NewLease("");
  EXPECT_EQ(none.AttachPrefix(other), 0);
  KvLease salted = cache->NewLease("alice");
  EXPECT_EQ(salted.AttachPrefix(longer), 0);
}

TEST(KvCacheTest, OnlyCommittedFullBlocksAreFound) {
  auto cache = MakeCache({Full()}, 10);
  KvLease lease = cache->NewLease("");
  std::vector<int32_t> tokens = Tokens(3 * kTokens);
  lease.Reserve(3 * kTokens)->Keep();
  lease.Commit(absl::MakeSpan(tokens).first(kTokens + 5));
  KvLease other = cache->NewLease("");
  EXPECT_EQ(other.AttachPrefix(tokens), kTokens);
}

TEST(KvCacheTest, EqualBlocksComputedTwiceAreIndexedOnce) {
  auto cache = MakeCache({Full()}, 4);
  const std::vector<int32_t> tokens = Tokens(kTokens);
  {
    KvLease a = cache->NewLease("");
    KvLease b = cache->NewLease("");
    Fill(&a, tokens);
    Fill(&b, tokens);
  }
  EXPECT_EQ(cache->blocks_free(), 4);
  EXPECT_EQ(cache->blocks_cached(), 1);
}

TEST(KvCacheTest, EvictsTheLeastRecentlyReleasedFromTheEnd) {
  auto cache = MakeCache({Full()}, 4);
  const std::vector<int32_t> old_tokens = Tokens(2 * kTokens + 1);
  const std::vector<int32_t> new_tokens = Tokens(kTokens + 1, 1000);
  {
    KvLease a = cache->NewLease("");
    a.Reserve(2 * kTokens)->Keep();
    a.Commit(absl::MakeSpan(old_tokens).first(2 * kTokens));
  }
  {
    KvLease b = cache->NewLease("");
    b.Reserve(kTokens)->Keep();
    b.Commit(absl::MakeSpan(new_tokens).first(kTokens));
  }
  EXPECT_EQ(cache->blocks_cached(), 3);
  KvLease c = cache->NewLease("");
  c.Reserve(2 * kTokens)->Keep();  // one unused block, one evicted
  EXPECT_EQ(cache->blocks_cached(), 2);
  KvLease a = cache->NewLease("");
  EXPECT_EQ(a.AttachPrefix(old_tokens), kTokens);
  KvLease b = cache->NewLease("");
  EXPECT_EQ(b.AttachPrefix(new_tokens), kTokens);
  KvLease d = cache->NewLease("");
  EXPECT_FALSE(d.Reserve(1).has_value());
}

TEST(KvCacheTest, WindowGroupFreesBlocksOutOfReach) {
  auto cache = MakeCache({Full(), Window(40)}, 20);
  KvLease lease = cache->NewLease("");
  Fill(&lease, Tokens(4 * kTokens));
  // The next row, at slot 128, sees slots from 89 on: blocks 2 and 3 of the window group.
  const auto tables = lease.Tables(4 * kTokens);
  EXPECT_EQ(tables[1][0], kNoBlock);
  EXPECT_EQ(tables[1][1], kNoBlock);
  EXPECT_NE(tables[1][2], kNoBlock);
  EXPECT_EQ(lease.blocks_held(), 6);
  EXPECT_EQ(cache->blocks_free(), 14);
  EXPECT_EQ(cache->blocks_cached(), 2);
}

TEST(KvCacheTest, PrefixNeedsOnlyWhatTheWindowReaches) {
  auto cache = MakeCache({Full(), Window(40)}, 9);
  const std::vector<int32_t> tokens = Tokens(4 * kTokens + 1);
  const auto compute = [&] {
    KvLease lease = cache->NewLease("");
    lease.Reserve(4 * kTokens)->Keep();
    lease.Commit(absl::MakeSpan(tokens).first(4 * kTokens));
  };
  compute();
  EXPECT_EQ(cache->blocks_cached(), 8);
  {
    // Takes the unused block and the oldest cached one, which is the window group's.
    KvLease filler = cache->NewLease("");
    filler.Reserve(kTokens)->Keep();
    EXPECT_EQ(cache->blocks_cached(), 7);
    KvLease lease = cache->NewLease("");
    EXPECT_EQ(lease.AttachPrefix(tokens), 4 * kTokens);
    EXPECT_EQ(lease.Tables(4 * kTokens)[1][0], kNoBlock);
    EXPECT_EQ(lease.blocks_held(), 6);
  }
  EXPECT_EQ(cache->blocks_free(), 9);
}

// A model with a full and two window groups, in a cache with a system prompt of 20 blocks.
class SharedPromptTest : public testing::Test {
 protected:
  static constexpr int64_t kShared = 20;  // blocks
  static constexpr int64_t kBlocks = 150;

  // A prompt that begins with the system prompt, of `blocks` blocks and one token.
  static std::vector<int32_t> Prompt(int64_t blocks, int32_t own) {
    std::vector<int32_t> tokens = Tokens(kShared * kTokens);
    const std::vector<int32_t> rest = Tokens((blocks - kShared) * kTokens + 1, 1000 * own);
    tokens.insert(tokens.end(), rest.begin(), rest.end());
    return tokens;
  }

  // Computes all tokens except the last one, in chunks of two blocks. Returns the cached ones.
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

  // Sequences of prompts of 7 blocks with 13 blocks of output, one after the other.
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
  // The tail is not held: if it must be, the memory is there.
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

// Full blocks and the tail are evicted at the same time: a block of one kind without the others
// would waste memory.
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
  // The whole sequence, too.
  EXPECT_EQ(CachedOf(tokens), 30 * kTokens);
}

TEST(KvCacheTest, BlocksForIsAnUpperBound) {
  const std::vector<int32_t> tokens = Tokens(300);
  for (const int64_t window : {1, 2, 31, 32, 33, 34, 40, 64, 65, 66}) {
    auto cache = MakeCache({Full(), Window(window)}, 64);
    for (const int64_t step : {1, 2, 7, 30, 31, 32, 33, 34, 300}) {
      SCOPED_TRACE(testing::Message() << "window " << window << ", step " << step);
      KvLease lease = cache->NewLease("");
      int64_t most = 0;
      for (int64_t at = 0; at < 300; at += step) {
        const int64_t end = std::min<int64_t>(300, at + step);
        lease.Reserve(end)->Keep();
        most = std::max(most, lease.blocks_held());
        lease.Commit(absl::MakeSpan(tokens).first(end));
      }
      EXPECT_LE(most, cache->BlocksFor(300, step));
      EXPECT_GE(most + 2, cache->BlocksFor(300, step));
    }
  }
}

TEST(KvCacheTest, NamesRecentPrefixes) {
  auto cache = MakeCache({Full()}, 3);
  EXPECT_TRUE(cache->RecentPrefixes(10).empty());
  const std::vector<int32_t> a = Tokens(2 * kTokens);
  const std::vector<int32_t> b = Tokens(kTokens, 500);
  for (const auto& tokens : {a, b, a}) {
    KvLease lease = cache->NewLease("salt");
    lease.AttachPrefix(tokens);
    Fill(&lease, tokens);
  }
  const uint64_t last_of_a = BlockDigests(a, "seed", "salt").back();
  const uint64_t last_of_b = BlockDigests(b, "seed", "salt").back();
  EXPECT_EQ(cache->RecentPrefixes(10), (std::vector<uint64_t>{last_of_a, last_of_b}));
  EXPECT_EQ(cache->RecentPrefixes(1), (std::vector<uint64_t>{last_of_a}));
  KvLease all = cache->NewLease("");
  all.Reserve(3 * kTokens)->Keep();
  EXPECT_TRUE(cache->RecentPrefixes(10).empty());
}

TEST(BlockPoolTest, EvictsPassedBlocksThenBoundariesThenWantedOnes) {
  BlockPool pool(8);
  const std::vector<int32_t> tokens = Tokens(kTokens);
  const auto key = [](int32_t block) { return BlockKey{.hash = {1, static_cast<uint64_t>(block)}}; };
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

// Two contents with the same hash, as an attacker might construct them.
TEST(BlockPoolTest, AHashCollisionDoesNotShareKv) {
  BlockPool pool(4);
  const BlockKey key = {.hash = {1, 2}, .group = 0};
  const std::vector<int32_t> mine = Tokens(kTokens);
  const std::vector<int32_t> others = Tokens(kTokens, 7);
  const int32_t block = pool.Allocate();
  pool.Index(block, key, others);
  EXPECT_EQ(pool.Find(key, others), block);
  EXPECT_EQ(pool.Find(key, mine), kNoBlock);
  // The second one is computed, but not found.
  const int32_t second = pool.Allocate();
  pool.Index(second, key, mine);
  EXPECT_EQ(pool.Find(key, mine), kNoBlock);
  EXPECT_EQ(pool.Find(key, others), block);
}

TEST(BlockHashTest, DependsOnTokensSeedAndSalt) {
  const std::vector<int32_t> tokens = Tokens(2 * kTokens + 3);
  const std::vector<uint64_t> digests = BlockDigests(tokens, "seed", "salt");
  ASSERT_EQ(digests.size(), 2u);
  EXPECT_NE(digests[0], digests[1]);
  EXPECT_EQ(BlockDigests(tokens, "seed", "salt"), digests);
  EXPECT_NE(BlockDigests(tokens, "see", "dsalt")[0], digests[0]);
  std::vector<int32_t> changed = tokens;
  changed[0] = 1000;  // reaches every later block
  const std::vector<uint64_t> others = BlockDigests(changed, "seed", "salt");
  EXPECT_NE(others[0], digests[0]);
  EXPECT_NE(others[1], digests[1]);
}

}  // namespace
}  // namespace tidepool::engine
