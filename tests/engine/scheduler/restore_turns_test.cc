// The order of sequences while KV is read back: plans in the notation of SchedulerTest::Plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/scheduler/kv_restores_fixture.h"

namespace tidepool::engine {
namespace {

using RestoreTurnsTest = KvRestoresTest;

TEST_F(RestoreTurnsTest, LaterSequencesLeaveTheLastPlace) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(30);
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  for (const char* name : {"B", "C", "D", "E"}) Add({.name = name, .prompt = 5});
  EXPECT_EQ(Step(), "B 0+5*, C 0+5*, D 0+5*");
  LetRead(4);
  EXPECT_EQ(Step(), "A 128+8*, B 5+1*, C 5+1*, D 5+1*");
  scheduler_->Remove(sequences_["B"]);
  EXPECT_EQ(Step(), "A 136+1*, C 6+1*, D 6+1*, E 0+5*");
}

TEST_F(RestoreTurnsTest, LaterSequencesLeaveItsBlocks) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});  // five blocks
  Add({.name = "B", .prompt = 8 * kTokens});
  Add({.name = "C", .prompt = 1});
  EXPECT_EQ(Step(), "");
  LetRead(2);
  EXPECT_EQ(Step(), "");
  LetRead(2);
  EXPECT_EQ(Step(), "A 128+8*");
  scheduler_->Remove(sequences_["A"]);
  EXPECT_EQ(Step(), "B 0+40, C 0+1*");
}

TEST_F(RestoreTurnsTest, AHigherPriorityTakesTheBlocks) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  EXPECT_EQ(Step(), "");
  LetRead(3);
  EXPECT_EQ(Step(), "");
  EXPECT_EQ(cache_->blocks_free(), 9);
  Add({.name = "H", .prompt = 10 * kTokens, .priority = 1});
  EXPECT_EQ(Step(), "H 0+40");
  EXPECT_EQ(restores_->running(), 0);
  // When its turn comes again, its KV is restored again. Blocks that are still in memory are not
  // read twice.
  scheduler_->Remove(sequences_["H"]);
  fake_.Release();
  ASSERT_TRUE(Eventually([&] {
    const std::string plan = Step();
    EXPECT_TRUE(plan.empty() || plan == "A 128+8*") << plan;
    return !plan.empty();
  }));
  EXPECT_EQ(restores_->stats().restores, 2);
  EXPECT_EQ(restores_->stats().tokens, kTokens);
}

// The sequence of higher priority needs blocks of a restore, and a place. Sequences of lower
// priority hold all places.
TEST_F(RestoreTurnsTest, AHigherPriorityTakesPlacesAndBlocks) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  for (const char* name : {"B", "C", "D"}) Add({.name = name, .prompt = 5});
  EXPECT_EQ(Step(), "B 0+5*, C 0+5*, D 0+5*");
  ASSERT_TRUE(Settle());
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  EXPECT_EQ(Step(), "B 5+1*, C 5+1*, D 5+1*");
  LetRead(3);
  EXPECT_EQ(Step(), "B 6+1*, C 6+1*, D 6+1*");
  Add({.name = "G", .prompt = 1, .priority = 1});  // G fits in addition to A
  Add({.name = "H", .prompt = 8 * kTokens, .priority = 1});
  EXPECT_EQ(Step(), "G 0+1*, H 0+40, B 7+1*");
  EXPECT_EQ(restores_->running(), 0);
}

TEST_F(RestoreTurnsTest, NoRestoreBeginsWhileAHigherPriorityWaits) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  Add({.name = "X", .prompt = 6 * kTokens, .priority = 2});
  for (int i = 0; i < 5; ++i) Step();
  Add({.name = "H", .prompt = 8 * kTokens, .priority = 1});
  Add({.name = "A", .prompt = 8, .shared = shared});
  EXPECT_EQ(Step(), "X 192+1*");
  EXPECT_EQ(restores_->stats().restores, 0);
}

// A running sequence does not take blocks of a restore for a higher priority. If it did, it would
// lose its KV in the next plan.
TEST_F(RestoreTurnsTest, RunningSequencesTakeNothingFromAHigherPriority) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(8);
  Add({.name = "B", .prompt = kTokens - 1});
  Step();
  ASSERT_TRUE(Settle());
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared, .priority = 1});
  EXPECT_EQ(Step(), "B 31+1*");
  LetRead(3);
  while (scheduler_->running() > 0 && sequences_["B"]->tokens.size() < 8 * kTokens) Step();
  EXPECT_EQ(sequences_["B"]->tokens.size(), 5u * kTokens + 1);
  EXPECT_EQ(scheduler_->preemptions(), 1);
  EXPECT_EQ(Step(), "");
  LetRead(1);
  EXPECT_EQ(Step(), "A 128+8*");
  EXPECT_EQ(restores_->stats().given_up, 0);
}

// A sequence that is restored preempts a running sequence that has a lower priority, or whose
// client does not read.
TEST_F(RestoreTurnsTest, AdmissionByPreemptionUsesTheDisk) {
  for (const bool stalled : {false, true}) {
    const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
    Add({.name = "L", .prompt = 10 * kTokens, .credit = stalled ? 1 : 1000});
    for (int i = 0; i < 8; ++i) Step();
    EXPECT_EQ(cache_->blocks_free(), 2);
    ASSERT_TRUE(Settle());
    fake_.Hold();
    Add({.name = "A", .prompt = 8, .shared = shared, .priority = stalled ? 0 : 1});
    EXPECT_EQ(Step(), "") << stalled;
    EXPECT_EQ(scheduler_->preemptions(), 1);
    LetRead(4);
    EXPECT_EQ(Step(), "A 128+8*") << stalled;
    EXPECT_EQ(sequences_["A"]->admission.cached_tokens, 4 * kTokens);
    fake_.Release();
    Stop();
    fake_.Cut(0);
  }
}

// Between the end of a restore and its sequence's turn, running sequences may need the blocks.
TEST_F(RestoreTurnsTest, RestoresAgainAfterALaterPreemption) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  Add({.name = "X", .prompt = 180});
  for (int i = 0; i < 5; ++i) Step();
  ASSERT_TRUE(Settle());
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  const KvLease& running = sequences_["X"]->lease;
  Step();
  EXPECT_EQ(restores_->running(), 1);
  LetRead(3);
  while (running.blocks_held() < 7) Step();
  LetRead(1);
  Step();
  EXPECT_EQ(restores_->stats().tokens, 4 * kTokens);
  EXPECT_FALSE(sequences_["A"]->admitted);
  while (running.blocks_held() < 9) Step();
  scheduler_->Remove(sequences_["X"]);
  fake_.Release();
  ASSERT_TRUE(Eventually([&] {
    const std::string plan = Step();
    EXPECT_TRUE(plan.empty() || plan == "A 128+8*") << plan;
    return !plan.empty();
  }));
  EXPECT_EQ(restores_->stats().tokens, 5 * kTokens);
}

TEST_F(RestoreTurnsTest, ASequenceThatEndsEndsItsRestore) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  Add({.name = "B", .prompt = 8, .shared = shared});
  EXPECT_EQ(Step(), "");
  LetRead(1);
  sequences_["A"]->control->cancelled = true;
  // B, which shared the restore with A, begins its own restore.
  EXPECT_EQ(Step(), "A! CANCELLED");
  EXPECT_EQ(restores_->stats().restores, 2);
  EXPECT_EQ(restores_->running(), 1);
  sequences_["B"]->control->cancelled = true;
  EXPECT_EQ(Step(), "B! CANCELLED");
  EXPECT_EQ(restores_->running(), 0);
  EXPECT_EQ(cache_->blocks_free(), 12);
}

// The restore continues although a sequence of lower priority began it.
TEST_F(RestoreTurnsTest, AHigherPriorityKeepsARestoreThatItShares) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(12);
  fake_.Hold();
  Add({.name = "A", .prompt = 8, .shared = shared});
  EXPECT_EQ(Step(), "");
  Add({.name = "H", .prompt = 8, .shared = shared, .priority = 2});
  Add({.name = "M", .prompt = 10 * kTokens, .priority = 1});
  EXPECT_EQ(Step(), "");
  LetRead(4);
  EXPECT_EQ(Step(), "H 128+8*");
  EXPECT_EQ(restores_->stats().given_up, 0);
}

// No two spans of the batch write to the same block.
void ExpectOwnBlocks(const Batch& batch) {
  std::vector<int32_t> owned;  // blocks that rows are written to
  for (const RowSpan& span : batch.spans) {
    for (int64_t slot = span.first_slot; slot < span.first_slot + span.rows(); ++slot) {
      const int32_t block = span.blocks[0][slot / kTokens];
      if (owned.empty() || owned.back() != block) owned.push_back(block);
    }
  }
  std::sort(owned.begin(), owned.end());
  EXPECT_EQ(std::adjacent_find(owned.begin(), owned.end()), owned.end());
}

// With random load, no sequence waits without end, and blocks are neither lost nor shared.
TEST_F(RestoreTurnsTest, RandomLoadKeepsTheInvariants) {
  uint32_t state = 1;
  const auto random = [&state](uint32_t limit) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % limit;
  };
  StartWithDisk(12);
  std::vector<std::string> live;
  const auto remove = [&](const std::string& name) {
    live.erase(std::find(live.begin(), live.end(), name));
  };
  const auto step = [&] {
    plan_.emplace(scheduler_->Plan(absl::ZeroDuration()));
    EXPECT_LE(plan_->batch.rows(), 64);
    EXPECT_LE(scheduler_->running(), 4);
    ExpectOwnBlocks(plan_->batch);
    for (const EndedSequence& ended : plan_->ended) remove(names_[ended.sequence->arrival]);
    Commit();
  };
  for (int i = 0; i < 3000; ++i) {
    if (live.size() < 8 && random(3) == 0) {
      live.push_back(absl::StrCat("s", i));
      const std::vector<int32_t> shared =
          Tokens((1 + random(4)) * kTokens, static_cast<int32_t>(random(6)));
      Add({.name = live.back(),
           .prompt = 1 + random(60),
           .shared = shared,
           .priority = static_cast<int32_t>(random(3)),
           .credit = random(20)});
    }
    step();
    for (const std::string& name : std::vector<std::string>(live)) {
      Sequence* sequence = sequences_[name];
      if (random(4) == 0) sequence->control->credit.fetch_add(random(10));
      if (random(60) == 0) sequence->control->cancelled = true;
      if (sequence->admitted && sequence->outputs() > static_cast<int64_t>(random(100))) {
        scheduler_->Remove(sequence);
        remove(name);
      }
    }
  }
  EXPECT_GT(scheduler_->preemptions(), 10);
  EXPECT_GT(restores_->stats().restores, 10);
  EXPECT_TRUE(Eventually([&] {
    step();
    for (const std::string& name : std::vector<std::string>(live)) {
      sequences_[name]->control->credit = 1000;
      if (!sequences_[name]->admitted || sequences_[name]->outputs() < 3) continue;
      scheduler_->Remove(sequences_[name]);
      remove(name);
    }
    return live.empty();
  }));
  EXPECT_EQ(restores_->running(), 0);
  EXPECT_EQ(cache_->blocks_free(), 12);
}

}  // namespace
}  // namespace tidepool::engine
