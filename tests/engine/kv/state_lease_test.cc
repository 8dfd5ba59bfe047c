// Recurrent states in the blocks of a KvCache: where they are, which checkpoints are kept, and what
// they cost.
#include "engine/kv/state_lease.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/kv/kv_cache.h"
#include "engine/model/state_layout.h"
#include "tests/engine/kv/kv_cache_fixture.h"

namespace tidepool::engine {
namespace {

constexpr int64_t kParts = 3;

RowSpan SpanOf(const KvLease& lease, const std::vector<int32_t>& tokens, int64_t end) {
  RowSpan span;
  span.first_slot = lease.slots();
  span.token_ids.assign(tokens.begin() + lease.slots(), tokens.begin() + end);
  lease.SetBlocks(&span);
  return span;
}

enum class Snapshots : uint8_t { kWithoutSpare, kWithSpare };

// Computes the tokens up to `end` in passes of at most `step` rows.
void Compute(KvLease* lease, const std::vector<int32_t>& tokens, int64_t end, int64_t step,
             Snapshots snapshots = Snapshots::kWithoutSpare) {
  while (lease->slots() < end) {
    const int64_t next = std::min(end, lease->slots() + step);
    std::optional<KvReservation> space = lease->Reserve(next);
    ASSERT_TRUE(space.has_value()) << next;
    lease->ReserveSnapshots(tokens, next);
    if (snapshots == Snapshots::kWithSpare) lease->ReserveSpareSnapshots(tokens, next);
    space->Keep();
    lease->Commit(absl::MakeSpan(tokens).first(next));
  }
}

std::vector<int32_t> Joined(std::vector<int32_t> head, const std::vector<int32_t>& tail) {
  head.insert(head.end(), tail.begin(), tail.end());
  return head;
}

std::vector<int32_t> Copy(absl::Span<const int32_t> blocks) {
  return {blocks.begin(), blocks.end()};
}

TEST(StateLayoutTest, UnitsAreInsideOfBlocksAndDoNotOverlap) {
  const std::vector<KvSpec> layers = {
      {.kind = KvKind::kState, .state = {{.units = 5, .unit_bytes = 700}, {2, 100}}},
      Full(),
      {.kind = KvKind::kState, .state = {{.units = 4, .unit_bytes = 256}}},
  };
  const StateLayout layout = LayOutState(layers, 1024);
  // Each unit of 704 bytes leaves room for one of 256 bytes, or for two of 128 bytes.
  EXPECT_EQ(layout.parts, 5);
  EXPECT_TRUE(layout.arrays[1].empty());
  std::set<std::pair<int32_t, size_t>> used;  // in units of 64 bytes
  for (const auto& arrays : layout.arrays) {
    for (const kernels::StateArray& array : arrays) {
      for (const kernels::StateUnit& unit : array.units) {
        EXPECT_EQ(unit.offset % kernels::kAlignment, 0u);
        EXPECT_LE(unit.offset + array.unit_bytes, 1024u);
        EXPECT_LT(unit.part, layout.parts);
        for (size_t at = unit.offset; at < unit.offset + array.unit_bytes; at += 64) {
          EXPECT_TRUE(used.insert({unit.part, at / 64}).second);
        }
      }
    }
  }
}

TEST(StateLayoutTest, ABlockHoldsAUnitAndStatesCountInTheCost) {
  const std::vector<KvSpec> layers = {
      Full(), {.kind = KvKind::kState, .state = {{.units = 3, .unit_bytes = 5000}}}, Full()};
  auto cache = MakeCache(layers, 20);
  EXPECT_EQ(cache->block_bytes(), 5056u);
  EXPECT_EQ(cache->groups(), 1);
  EXPECT_EQ(cache->state_parts(), 3);
  EXPECT_EQ(cache->view().group_of_layer, (std::vector<int>{0, -1, 0}));
  EXPECT_EQ(KvCostOf(layers).state_bytes, 3 * 5056);
  EXPECT_EQ(KvCapacityTokens(layers, 20 * 5056, 512), (20 - 3 * 3) * kTokens);
  EXPECT_EQ(cache->BlocksFor(100, 512), 4 + 3 * 3);
  const auto small = KvCache::Create(layers, {.memory_bytes = 9 * 5056});
  EXPECT_EQ(small.status().code(), absl::StatusCode::kInvalidArgument);
}

// 32 layers, of which every fourth has attention, and the others are gated delta nets with 32 heads
// of 128 x 128 and a convolution over 8,192 channels (Qwen3.5 9B). docs/sessions.md has the sizes.
TEST(StateLayoutTest, AStateOfA9BHybridCostsAsMuchAsTheKvOf1600Tokens) {
  const KvSpec full = {.kv_heads = 4, .k_dim = 256, .v_dim = 256};
  const KvSpec delta_net = {
      .kind = KvKind::kState,
      .state = {{.units = 32, .unit_bytes = 128 * 128 * 4}, {.units = 32, .unit_bytes = 3 * 1024}}};
  std::vector<KvSpec> layers;
  for (int i = 0; i < 32; ++i) layers.push_back(i % 4 == 3 ? full : delta_net);
  const KvCost cost = KvCostOf(layers);
  EXPECT_EQ(cost.bytes_per_token, 32 << 10);
  EXPECT_EQ(cost.state_bytes, int64_t{51} << 20);
  EXPECT_EQ(KvBlockBytes(layers), 1 << 20);
  // With --kv-memory 4GiB, a single sequence has three states and the rest for its KV.
  EXPECT_EQ(KvCapacityTokens(layers, size_t{4} << 30, 512), (4096 - 3 * 51) * kTokens);
}

TEST(StateLayoutTest, AModelMayHaveNoAttention) {
  auto cache = MakeCache({State(2), State(2)}, 10);
  EXPECT_EQ(cache->groups(), 0);
  EXPECT_EQ(cache->state_parts(), 2);
  const std::vector<int32_t> tokens = Tokens(100);
  {
    KvLease lease = cache->NewLease("");
    Compute(&lease, tokens, 99, 10);
    EXPECT_EQ(lease.blocks_held(), 2);
  }
  EXPECT_EQ(cache->NewLease("").CachedTokens(tokens), 3 * kTokens);
}

TEST(StateLeaseTest, APassReadsTheStateThatTheLastOneWrote) {
  auto cache = MakeCache({Full(), State(kParts)}, 40);
  const std::vector<int32_t> tokens = Tokens(200);
  KvLease lease = cache->NewLease("");
  std::vector<int32_t> last;
  for (int64_t end = 20; end <= 200; end += 20) {
    std::optional<KvReservation> space = lease.Reserve(end);
    ASSERT_TRUE(space.has_value());
    const RowSpan span = SpanOf(lease, tokens, end);
    EXPECT_EQ(Copy(span.state_in), last) << end;
    last = Copy(span.state_out);
    EXPECT_EQ(last.size(), static_cast<size_t>(kParts));
    std::set<int32_t> blocks(span.state_in.begin(), span.state_in.end());
    blocks.insert(span.state_out.begin(), span.state_out.end());
    blocks.insert(span.blocks[0].begin(), span.blocks[0].end());
    EXPECT_EQ(blocks.size(), span.state_in.size() + kParts + span.blocks[0].size());
    space->Keep();
    lease.Commit(absl::MakeSpan(tokens).first(end));
  }
}

TEST(StateLeaseTest, APlanThatIsDroppedChangesNothing) {
  auto cache = MakeCache({Full(), State(kParts)}, 40);
  const std::vector<int32_t> tokens = Tokens(200);
  KvLease lease = cache->NewLease("");
  Compute(&lease, tokens, 50, 50);
  const int64_t free = cache->blocks_free();
  std::vector<int32_t> in;
  for (int i = 0; i < 3; ++i) {
    std::optional<KvReservation> space = lease.Reserve(150);
    lease.ReserveSnapshots(tokens, 150);
    const RowSpan span = SpanOf(lease, tokens, 150);
    EXPECT_EQ(span.state_snapshots.size(), 1u);
    if (i > 0) {
      EXPECT_EQ(Copy(span.state_in), in);
    }
    in = Copy(span.state_in);
    // The pass needs three blocks of KV, a state and a snapshot.
    EXPECT_EQ(cache->blocks_free(), free - 3 - 2 * kParts);
    space.reset();
    EXPECT_EQ(cache->blocks_free(), free);
  }
}

TEST(StateLeaseTest, SnapshotsAreWhereAPassGoesOverABoundary) {
  auto cache = MakeCache({Full(), State(kParts)}, 60);
  const std::vector<int32_t> tokens = Tokens(400);
  KvLease lease = cache->NewLease("", 200);
  lease.WantCheckpoint(3);
  std::optional<KvReservation> space = lease.Reserve(250);
  lease.ReserveSnapshots(tokens, 250);
  const RowSpan span = SpanOf(lease, tokens, 250);
  std::vector<int64_t> rows;
  for (const kernels::StateSnapshot& one : span.state_snapshots) rows.push_back(one.rows);
  // The snapshots are at the branch, at the end of the prompt, and at the last boundary.
  EXPECT_EQ(rows, (std::vector<int64_t>{3 * kTokens, 6 * kTokens, 7 * kTokens}));
  space->Keep();
  lease.Commit(absl::MakeSpan(tokens).first(250));
  // If a pass ends at a boundary, its own state is the checkpoint.
  std::optional<KvReservation> next = lease.Reserve(256);
  lease.ReserveSnapshots(tokens, 256);
  EXPECT_TRUE(SpanOf(lease, tokens, 256).state_snapshots.empty());
  next->Keep();
  lease.Commit(absl::MakeSpan(tokens).first(256));
  EXPECT_EQ(cache->NewLease("").CachedTokens(tokens), 256);
}

TEST(StateLeaseTest, APrefixEndsAtACheckpoint) {
  auto cache = MakeCache({Full(), State(kParts)}, 60);
  const std::vector<int32_t> tokens = Tokens(300);
  KvLease first = cache->NewLease("", 170);
  Compute(&first, tokens, 250, 250);
  // Checkpoints are at the end of the prompt and at the last boundary.
  EXPECT_EQ(cache->NewLease("").CachedTokens(tokens), 7 * kTokens);
  for (const int64_t length : {7 * kTokens, 5 * kTokens + 1}) {
    KvLease lease = cache->NewLease("");
    EXPECT_EQ(lease.AttachPrefix(absl::MakeSpan(tokens).first(length)), 5 * kTokens);
  }
  EXPECT_EQ(cache->NewLease("").CachedTokens(absl::MakeSpan(tokens).first(5 * kTokens)), 0);
  EXPECT_EQ(cache->NewLease("x").CachedTokens(tokens), 0);
}

TEST(StateLeaseTest, ForksShareAStateAndWriteTheirOwn) {
  auto cache = MakeCache({Full(), State(kParts)}, 60);
  const std::vector<int32_t> prompt = Tokens(100);
  {
    KvLease lease = cache->NewLease("", 100);
    Compute(&lease, Joined(prompt, {1}), 100, 100);
  }
  KvLease a = cache->NewLease("");
  KvLease b = cache->NewLease("");
  EXPECT_EQ(a.AttachPrefix(Joined(prompt, {1})), 3 * kTokens);
  EXPECT_EQ(a.blocks_held_alone(), 3 + kParts);
  EXPECT_EQ(b.AttachPrefix(Joined(prompt, {2})), 3 * kTokens);
  EXPECT_EQ(a.blocks_held(), 3 + kParts);
  EXPECT_EQ(a.blocks_held_alone(), 0);
  a.Reserve(101)->Keep();
  b.Reserve(101)->Keep();
  const RowSpan of_a = SpanOf(a, Joined(prompt, {1}), 101);
  const RowSpan of_b = SpanOf(b, Joined(prompt, {2}), 101);
  EXPECT_EQ(Copy(of_a.state_in), Copy(of_b.state_in));
  EXPECT_NE(Copy(of_a.state_out), Copy(of_b.state_out));
  a.Commit(Joined(prompt, {1}));
  EXPECT_EQ(cache->NewLease("").CachedTokens(Joined(prompt, {3})), 3 * kTokens);
}

// Whatever its length, the next turn of a session finds all full blocks of the last one.
TEST(StateLeaseTest, ASequenceIsFoundAtItsEnd) {
  for (int64_t length = 64; length < 130; ++length) {
    auto cache = MakeCache({Full(), State(kParts)}, 30);
    const std::vector<int32_t> tokens = Tokens(length + 40);
    {
      KvLease lease = cache->NewLease("", 20);
      Compute(&lease, tokens, 20, 20);
      Compute(&lease, tokens, length, 1);
    }
    EXPECT_EQ(cache->NewLease("").CachedTokens(tokens), length / kTokens * kTokens);
  }
}

// A response of 1,000 tokens leaves two checkpoints: at its end, and at the end of its prompt.
TEST(StateLeaseTest, APassedCheckpointOfAResponseIsNotKept) {
  auto cache = MakeCache({Full(), State(kParts)}, 100);
  const std::vector<int32_t> tokens = Tokens(1100);
  KvLease lease = cache->NewLease("", 100);
  Compute(&lease, tokens, 100, 100);
  for (int64_t end = 101; end <= 1000; ++end) {
    Compute(&lease, tokens, end, 1);
    EXPECT_LE(lease.blocks_held() + cache->blocks_cached(), KvBlocksOf(end) + kParts * 3);
  }
  lease.Reset();
  EXPECT_EQ(cache->blocks_cached(), 1000 / kTokens + 2 * kParts);
}

// Long prompts keep some of the states between their passes, because a later prompt may branch off
// anywhere.
TEST(StateLeaseTest, PassedCheckpointsOfAPromptAreEightBlocksApart) {
  auto cache = MakeCache({Full(), State(kParts)}, 200);
  const std::vector<int32_t> tokens = Tokens(1200);
  KvLease lease = cache->NewLease("", 1150);
  Compute(&lease, tokens, 1150, 70);
  std::vector<int64_t> found;
  for (int64_t blocks = 1; blocks <= 36; ++blocks) {
    const auto part = absl::MakeSpan(tokens).first(blocks * kTokens + 1);
    const int64_t cached = cache->NewLease("").CachedTokens(part) / kTokens;
    if (found.empty() ? cached > 0 : cached > found.back()) found.push_back(cached);
  }
  EXPECT_EQ(found, (std::vector<int64_t>{8, 17, 26, 35}));
}

TEST(StateLeaseTest, BlocksForIsAnUpperBound) {
  const std::vector<int32_t> tokens = Tokens(300);
  for (const int64_t step : {1, 2, 7, 31, 32, 33, 300}) {
    auto cache = MakeCache({Full(), State(kParts)}, 64);
    KvLease lease = cache->NewLease("", 150);
    for (int64_t at = 0; at < 300; at += step) {
      const int64_t end = std::min<int64_t>(300, at + step);
      lease.Reserve(end)->Keep();
      EXPECT_LE(lease.blocks_held() + kParts, cache->BlocksFor(300, step));
      lease.Commit(absl::MakeSpan(tokens).first(end));
    }
  }
}

// Returns at which boundaries a prefix of `tokens` can be reused.
std::vector<int64_t> Checkpoints(KvCache* cache, const std::vector<int32_t>& tokens) {
  std::vector<int64_t> found;
  for (int64_t blocks = 1; blocks * kTokens < static_cast<int64_t>(tokens.size()); ++blocks) {
    const auto part = absl::MakeSpan(tokens).first(blocks * kTokens + 1);
    if (cache->NewLease("").CachedTokens(part) == blocks * kTokens) found.push_back(blocks);
  }
  return found;
}

// Sequences that come later can branch off within a pass.
TEST(StateLeaseTest, SpareCheckpointsOfAPromptTakeAQuarterOfTheMemory) {
  const std::vector<int32_t> tokens = Tokens(330);
  for (const auto& [quarter, boundaries] : std::vector<std::pair<int64_t, std::vector<int64_t>>>{
           {20, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}, {5, {2, 4, 6, 8, 9, 10}}, {2, {5, 9, 10}}}) {
    auto cache = MakeCache({Full(), State(kParts)}, 4 * kParts * quarter);
    KvLease lease = cache->NewLease("", 310);
    Compute(&lease, tokens, 325, 325, Snapshots::kWithSpare);
    EXPECT_EQ(Checkpoints(cache.get(), tokens), boundaries) << quarter;
  }
}

// The memory that a prompt does not need has checkpoints of other sequences.
TEST(StateLeaseTest, SpareCheckpointsEvictNoOtherOnes) {
  const std::vector<int32_t> of_a = Tokens(70);
  const std::vector<int32_t> of_b = Tokens(330, 1000);
  auto cache = MakeCache({Full(), State(kParts)}, 40);
  {
    KvLease a = cache->NewLease("", 40);
    Compute(&a, of_a, 70, 70, Snapshots::kWithSpare);
  }
  const std::vector<int64_t> before = Checkpoints(cache.get(), of_a);
  EXPECT_EQ(before, (std::vector<int64_t>{1, 2}));
  // 8 blocks have checkpoints and KV of a. b needs 11 blocks for KV, 3 for its state, and 6 for the
  // checkpoints of its prompt and of its last boundary. 12 blocks are left.
  KvLease b = cache->NewLease("", 310);
  Compute(&b, of_b, 325, 325, Snapshots::kWithSpare);
  EXPECT_EQ(Checkpoints(cache.get(), of_a), before);
  EXPECT_EQ(Checkpoints(cache.get(), of_b), (std::vector<int64_t>{4, 8, 9, 10}));
}

// The turns of a session: each leaves a checkpoint at the end of its prompt and at its own end.
TEST(StateLeaseTest, AnOlderCheckpointOfASessionIsEvictedBeforeTheLastOneOfAnother) {
  const std::vector<int32_t> of_a = Tokens(70);
  const std::vector<int32_t> of_b = Tokens(600, 1000);
  auto cache = MakeCache({Full(), State(kParts)}, 60);
  const auto turn = [&](const std::vector<int32_t>& tokens, int64_t prompt, int64_t end) {
    KvLease lease = cache->NewLease("", prompt);
    lease.AttachPrefix(absl::MakeSpan(tokens).first(prompt));
    lease.NoteStart(tokens);
    Compute(&lease, tokens, end, 1, Snapshots::kWithSpare);
  };
  turn(of_a, 60, 70);
  for (int64_t end = 100; end <= 600; end += 100) turn(of_b, end - 30, end);
  // The KV of b alone takes 18 blocks, and two checkpoints per turn would take 36.
  EXPECT_EQ(cache->NewLease("").CachedTokens(of_a), 2 * kTokens);
  EXPECT_EQ(cache->NewLease("").CachedTokens(of_b), 18 * kTokens);
}

// Sequences begin with the same prompt. One of them has a second turn.
TEST(StateLeaseTest, ACheckpointWhereTwoSequencesBeganIsNotSuperseded) {
  const std::vector<int32_t> shared = Tokens(70);
  for (const int sequences : {1, 2}) {
    auto cache = MakeCache({Full(), State(kParts)}, 60);
    const auto run = [&](const std::vector<int32_t>& tokens, int64_t prompt, int64_t end) {
      KvLease lease = cache->NewLease("", prompt);
      lease.AttachPrefix(absl::MakeSpan(tokens).first(prompt));
      lease.NoteStart(tokens);
      Compute(&lease, tokens, end, end);
    };
    run(Tokens(40, 5000), 20, 33);  // the oldest one
    run(Joined(shared, Tokens(5, 500)), 75, 75);
    const std::vector<int32_t> first = Joined(shared, Tokens(300, 1000));
    run(first, 140, 150);
    if (sequences == 2) run(Joined(shared, Tokens(30, 2000)), 100, 100);
    run(first, 160, 200);
    // Evict one block.
    const int64_t unused = cache->blocks_free() - cache->blocks_cached();
    KvLease other = cache->NewLease("");
    ASSERT_TRUE(other.Reserve((unused - kParts + 1) * kTokens).has_value());
    EXPECT_EQ(cache->NewLease("").CachedTokens(Joined(shared, {1})),
              sequences == 2 ? 2 * kTokens : 0);
  }
}

// A sequence can use all blocks. Then its checkpoints are evicted before anything fails.
TEST(StateLeaseTest, CheckpointsAreLostWhenMemoryIsShort) {
  const int64_t blocks = 10 + 2 * kParts;
  auto cache = MakeCache({Full(), State(kParts)}, blocks);
  const std::vector<int32_t> tokens = Tokens(10 * kTokens + 1);
  {
    KvLease lease = cache->NewLease("", 100);
    Compute(&lease, tokens, 10 * kTokens, 5);
    EXPECT_EQ(lease.blocks_held(), 10 + kParts);
    EXPECT_FALSE(lease.Reserve(10 * kTokens + 1).has_value());
    EXPECT_EQ(cache->blocks_free(), kParts);
  }
  EXPECT_EQ(cache->blocks_free(), blocks);
}

// A snapshot does not take a checkpoint that a running sequence needs.
TEST(StateLeaseTest, SnapshotsDoNotTakeWantedBlocks) {
  const std::vector<int32_t> of_a = Tokens(40);
  const std::vector<int32_t> of_b = Tokens(80, 1000);
  for (const int64_t spare : {kParts - 1, kParts}) {
    // Sequence a has two blocks of KV, a state and a checkpoint. Sequence b has reserved the same
    // number of blocks.
    auto cache = MakeCache({Full(), State(kParts)}, 4 + 3 * kParts + spare);
    KvLease a = cache->NewLease("", 10);
    Compute(&a, of_a, 33, 32);
    KvLease b = cache->NewLease("", 10);
    std::optional<KvReservation> space = b.Reserve(60);
    ASSERT_TRUE(space.has_value());
    b.ReserveSnapshots(of_b, 60);
    EXPECT_EQ(SpanOf(b, of_b, 60).state_snapshots.size(), spare == kParts ? 1u : 0u);
    EXPECT_EQ(cache->NewLease("").CachedTokens(of_a), kTokens);
  }
}

TEST(StateLeaseTest, WorksBesideWindows) {
  auto cache = MakeCache({Full(), Window(40), State(kParts)}, 80);
  const std::vector<int32_t> tokens = Tokens(300);
  {
    KvLease lease = cache->NewLease("", 170);
    Compute(&lease, tokens, 290, 50);
  }
  KvLease lease = cache->NewLease("");
  EXPECT_EQ(lease.AttachPrefix(tokens), 9 * kTokens);
  lease.Reset();
  EXPECT_EQ(lease.AttachPrefix(absl::MakeSpan(tokens).first(175)), 5 * kTokens);
  Compute(&lease, tokens, 290, 50);
  lease.Reset();
  EXPECT_EQ(cache->blocks_free(), cache->blocks_total());
}

}  // namespace
}  // namespace tidepool::engine
