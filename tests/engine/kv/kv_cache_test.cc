#include "engine/kv/kv_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/kv/block_pool.h"
#include "tests/engine/kv/kv_cache_fixture.h"

namespace tidepool::engine {
namespace {

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
  const size_t keys = 2 * 4 * kTokens * 2;  // bytes of the keys; the values have the same number
  EXPECT_EQ(cache->block_bytes(), 4 * keys);
  EXPECT_EQ(view.layers[0].k_offset, 0u);
  EXPECT_EQ(view.layers[0].v_offset, keys);
  EXPECT_EQ(view.layers[2].k_offset, 2 * keys);
  EXPECT_EQ(view.layers[2].v_offset, 3 * keys);
  EXPECT_EQ(view.layers[1].k_offset, 0u);
  EXPECT_EQ(view.layers[0].arena, view.layers[1].arena);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(view.layers[0].arena) % 64, 0u);
}

// Gemma 3 1B has 22 layers with a window, and 4 without. If a block had room for 22 layers, the
// group of 4 would waste 82 % of it.
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
  // With 29 and 5 layers (Gemma 3 4B), one of 35 places in the groups stays empty.
  layers.clear();
  for (int i = 0; i < 34; ++i) layers.push_back((i + 1) % 6 == 0 ? Full() : Window(64));
  auto other = MakeCache(layers, 30);
  EXPECT_EQ(other->groups(), 7);
  EXPECT_EQ(other->block_bytes(), 5 * layer);
}

// Each of the two full groups needs a block per 32 tokens. Each of the eleven other groups needs
// the blocks of a window.
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

TEST(KvCacheTest, APrefixNeedsOnlyTheBlocksInTheWindow) {
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
    // The filler takes the unused block and the oldest cached one, which belongs to the window
    // group.
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

// Two contents have the same hash, as an attacker might construct them.
TEST(BlockPoolTest, AHashCollisionDoesNotShareKv) {
  BlockPool pool(4);
  const BlockKey key = {.hash = {1, 2}, .group = 0};
  const std::vector<int32_t> mine = Tokens(kTokens);
  const std::vector<int32_t> others = Tokens(kTokens, 7);
  const int32_t block = pool.Allocate();
  pool.Index(block, key, others);
  EXPECT_EQ(pool.Find(key, others), block);
  EXPECT_EQ(pool.Find(key, mine), kNoBlock);
  // The second content has a block with computed KV, but is not found.
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
