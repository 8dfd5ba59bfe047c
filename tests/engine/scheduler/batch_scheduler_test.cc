// Plans as literal snapshots, in the notation of SchedulerTest::Plan.
#include "engine/scheduler/batch_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

using BatchSchedulerTest = SchedulerTest;

TEST_F(BatchSchedulerTest, PlanIsEmptyWithoutSequences) {
  Start(100);
  EXPECT_EQ(Plan(), "");
  EXPECT_EQ(scheduler_->NextDeadline(), absl::InfiniteDuration());
}

TEST_F(BatchSchedulerTest, PrefillChunksAndDecodesShareAStep) {
  Start(100);
  Add({.name = "A", .prompt = 10});
  Add({.name = "B", .prompt = 100});
  EXPECT_EQ(Step(), "A 0+10*, B 0+40");
  EXPECT_EQ(Step(), "A 10+1*, B 40+40");
  Add({.name = "C", .prompt = 50});
  EXPECT_EQ(Step(), "A 11+1*, B 80+20*, C 0+40");
  EXPECT_EQ(Step(), "A 12+1*, B 100+1*, C 40+10*");
  EXPECT_EQ(Step(), "A 13+1*, B 101+1*, C 50+1*");
}

TEST_F(BatchSchedulerTest, RowsOfAStepAreBounded) {
  Start(100, {.limits = {.rows = 20, .logit_rows = 8}, .prefill_chunk = 40, .max_sequences = 4});
  Add({.name = "A", .prompt = 15});
  Add({.name = "B", .prompt = 15});
  Add({.name = "C", .prompt = 15});
  EXPECT_EQ(Step(), "A 0+15*, B 0+5");
  EXPECT_EQ(Step(), "A 15+1*, B 5+10*, C 0+9");
  EXPECT_EQ(Step(), "A 16+1*, B 15+1*, C 9+6*");
}

TEST_F(BatchSchedulerTest, ForcedTokensAreComputedWithTheTokenBeforeThem) {
  Start(100, {.limits = {.rows = 20, .logit_rows = 8}, .prefill_chunk = 40, .max_sequences = 4});
  const auto force = [this](const std::string& name, int64_t count) {
    sequences_[name]->tokens.resize(sequences_[name]->tokens.size() + count, 'f');
    sequences_[name]->forced = count;
  };
  Add({.name = "A", .prompt = 2});
  Add({.name = "B", .prompt = 40});
  EXPECT_EQ(Step(), "A 0+2*, B 0+18");
  force("A", 3);
  EXPECT_EQ(scheduler_->QueuedPromptTokens(), 22);
  // Forced tokens do not count as a prompt that ends. If they did, B would get fewer rows.
  EXPECT_EQ(Plan(), "A 2+4*, B 18+16");
  EXPECT_EQ(plan_->batch.spans[0].phase, moe::Phase::kDecode);
  Commit();
  force("A", 7);  // a sequence gets at most a quarter of the 20 rows
  EXPECT_EQ(Step(), "A 6+5, B 34+6*");
  EXPECT_EQ(Step(), "A 11+3*, B 40+1*");
  sequences_["A"]->forced = 0;
  EXPECT_EQ(Step(), "A 14+1*, B 41+1*");
}

TEST_F(BatchSchedulerTest, ChunksFollowTheLimits) {
  Start(100);
  Add({.name = "A", .prompt = 3});
  Add({.name = "B", .prompt = 100});
  scheduler_->SetLimits({.prefill_chunk = 10, .mixed_rows = 64});
  EXPECT_EQ(Step(), "A 0+3*, B 0+7");
  EXPECT_EQ(Step(), "A 3+1*, B 7+9");
  scheduler_->SetLimits({.prefill_chunk = 40, .mixed_rows = 64});
  EXPECT_EQ(Step(), "A 4+1*, B 16+40");
  // One row of each sequence always fits.
  scheduler_->SetLimits({.prefill_chunk = 1, .mixed_rows = 64});
  EXPECT_EQ(Step(), "A 5+1*, B 56+1");
}

TEST_F(BatchSchedulerTest, OrderIsPriorityThenArrival) {
  Start(100);
  Add({.name = "low", .prompt = 30, .priority = -1});
  Add({.name = "first", .prompt = 30});
  Add({.name = "second", .prompt = 30});
  Add({.name = "high", .prompt = 30, .priority = 5});
  EXPECT_EQ(Step(), "high 0+30*, first 0+30*, second 0+4");
  EXPECT_EQ(Step(), "high 30+1*, first 30+1*, second 4+26*, low 0+30*");
}

TEST_F(BatchSchedulerTest, AtMostMaxSequencesRun) {
  Start(100);
  for (const char* name : {"A", "B", "C", "D", "E"}) Add({.name = name, .prompt = 2});
  EXPECT_EQ(Step(), "A 0+2*, B 0+2*, C 0+2*, D 0+2*");
  EXPECT_EQ(scheduler_->running(), 4);
  EXPECT_EQ(scheduler_->waiting(), 1);
  EXPECT_EQ(scheduler_->QueuedPromptTokens(), 2);
  scheduler_->Remove(sequences_["B"]);
  EXPECT_EQ(Step(), "A 2+1*, C 2+1*, D 2+1*, E 0+2*");
}

TEST_F(BatchSchedulerTest, AdmitsRequestsThatFitInOrder) {
  Start(6);
  Add({.name = "A", .prompt = 3 * kTokens});
  Add({.name = "large", .prompt = 3 * kTokens});  // fits, but one block must remain for A
  Add({.name = "small", .prompt = 1});
  EXPECT_EQ(Step(), "A 0+40");
  EXPECT_EQ(Step(), "A 40+40");
  EXPECT_EQ(Step(), "A 80+16*");
  scheduler_->Remove(sequences_["A"]);
  EXPECT_EQ(Step(), "large 0+40, small 0+1*");
}

TEST_F(BatchSchedulerTest, BlocksOfPrefillsInProgressAreReserved) {
  Start(7);
  Add({.name = "A", .prompt = 4 * kTokens});
  EXPECT_EQ(Step(), "A 0+40");  // two blocks of four
  Add({.name = "B", .prompt = 3 * kTokens});
  EXPECT_EQ(Step(), "A 40+40");
  EXPECT_EQ(cache_->blocks_free(), 4);
  EXPECT_EQ(scheduler_->waiting(), 1);
}

TEST_F(BatchSchedulerTest, SequencesWithoutCreditAreNotPlanned) {
  Start(100);
  Add({.name = "A", .prompt = 5, .credit = 2});
  Add({.name = "B", .prompt = 5, .credit = 0});
  EXPECT_EQ(Step(), "A 0+5*");
  EXPECT_EQ(Step(), "A 5+1*");
  EXPECT_EQ(Step(), "");
  EXPECT_EQ(cache_->blocks_free(), 99);  // A keeps its KV
  sequences_["B"]->control->credit = 1;
  EXPECT_EQ(Step(), "B 0+5*");
  sequences_["A"]->control->credit = 1;
  EXPECT_EQ(Step(), "A 6+1*");
  EXPECT_EQ(scheduler_->preemptions(), 0);
}

TEST_F(BatchSchedulerTest, AWaitingSequencePreemptsAStalledOne) {
  Start(4);
  Add({.name = "A", .prompt = 3 * kTokens, .credit = 1});
  for (int i = 0; i < 3; ++i) Step();
  Add({.name = "B", .prompt = 2 * kTokens});
  EXPECT_EQ(Step(), "B 0+40");
  EXPECT_EQ(scheduler_->preemptions(), 1);
  sequences_["A"]->control->credit = 1;
  // A arrived before B, but B is running. When B has ended, A is computed again, except for cached
  // blocks.
  EXPECT_EQ(Step(), "B 40+24*");
  scheduler_->Remove(sequences_["B"]);
  EXPECT_EQ(Step(), "A 64+33*");
}

TEST_F(BatchSchedulerTest, PreemptsTheLastInOrderWhenBlocksRunOut) {
  Start(4);
  Add({.name = "A", .prompt = kTokens - 1});
  Add({.name = "B", .prompt = kTokens - 1, .priority = 1});
  EXPECT_EQ(Step(), "B 0+31*, A 0+31*");
  EXPECT_EQ(Step(), "B 31+1*, A 31+1*");
  EXPECT_EQ(Step(), "B 32+1*, A 32+1*");  // two blocks each, so all are taken
  for (int i = 0; i < 31; ++i) Step();
  EXPECT_EQ(Step(), "B 64+1*");
  EXPECT_EQ(scheduler_->preemptions(), 1);
  EXPECT_EQ(scheduler_->waiting(), 1);
  scheduler_->Remove(sequences_["B"]);
  EXPECT_EQ(Step(), "A 32+33*");  // B got A's other cached block
}

TEST_F(BatchSchedulerTest, TheLastInOrderPreemptsItself) {
  Start(4);
  Add({.name = "A", .prompt = kTokens});
  Add({.name = "B", .prompt = kTokens + 20});
  EXPECT_EQ(Step(), "A 0+32*, B 0+32");
  EXPECT_EQ(Step(), "A 32+1*, B 32+20*");
  for (int i = 0; i < 11; ++i) Step();
  EXPECT_EQ(Step(), "A 44+1*, B 63+1*");
  EXPECT_EQ(Step(), "A 45+1*");  // B needs a third block, but A goes before it
  EXPECT_EQ(scheduler_->preemptions(), 1);
  EXPECT_EQ(scheduler_->waiting(), 1);
}

TEST_F(BatchSchedulerTest, AStalledSequenceIsPreemptedBeforeOthers) {
  Start(7);
  Add({.name = "stalled", .prompt = kTokens, .priority = 9, .credit = 1});
  Add({.name = "A", .prompt = kTokens});
  EXPECT_EQ(Step(), "stalled 0+32*, A 0+32*");
  Add({.name = "B", .prompt = 1});
  EXPECT_EQ(Step(), "A 32+1*, B 0+1*");
  for (int i = 0; i < 62; ++i) Step();
  EXPECT_EQ(scheduler_->preemptions(), 0);
  EXPECT_EQ(Step(), "A 95+1*, B 63+1*");
  EXPECT_EQ(Step(), "A 96+1*, B 64+1*");
  EXPECT_EQ(scheduler_->preemptions(), 1);
  EXPECT_FALSE(sequences_["stalled"]->admitted);
}

TEST_F(BatchSchedulerTest, CancelledAndExpiredSequencesEnd) {
  Start(100);
  const absl::Duration soon = absl::Seconds(1);
  Add({.name = "A", .prompt = 50});
  Add({.name = "B", .prompt = 5, .deadline = soon});
  Add({.name = "C", .prompt = 5, .credit = 0, .deadline = soon + absl::Seconds(1)});
  EXPECT_EQ(Step(), "A 0+40, B 0+5*");
  EXPECT_EQ(scheduler_->NextDeadline(), soon);
  sequences_["A"]->control->cancelled = true;
  EXPECT_EQ(Plan(soon), "A! CANCELLED, B! DEADLINE_EXCEEDED");
  plan_.reset();
  EXPECT_EQ(cache_->blocks_free(), 100);
  EXPECT_EQ(scheduler_->NextDeadline(), soon + absl::Seconds(1));
  EXPECT_EQ(Plan(soon + absl::Seconds(1)), "C! DEADLINE_EXCEEDED");
}

TEST_F(BatchSchedulerTest, ASequenceThatOutgrowsTheMemoryEnds) {
  Start(2);
  Add({.name = "A", .prompt = 40});
  EXPECT_EQ(Step(), "A 0+40*");
  for (int i = 0; i < 24; ++i) Step();
  EXPECT_EQ(Plan(), "A! RESOURCE_EXHAUSTED");
  EXPECT_EQ(cache_->blocks_free(), 2);
}

TEST_F(BatchSchedulerTest, ADroppedPlanReturnsItsBlocks) {
  Start(100);
  Add({.name = "A", .prompt = 70});
  EXPECT_EQ(Plan(), "A 0+40");
  EXPECT_EQ(cache_->blocks_free(), 98);
  plan_.reset();
  EXPECT_EQ(cache_->blocks_free(), 100);
  EXPECT_EQ(Step(), "A 0+40");
  EXPECT_EQ(Step(), "A 40+30*");
}

TEST_F(BatchSchedulerTest, StartsAfterTheCachedPrefix) {
  Start(100);
  Add({.name = "A", .prompt = 2 * kTokens + 6});
  Step();
  Step();
  Sequence* a = sequences_["A"];
  auto again = std::make_unique<Sequence>(
      arrival_++, GenerationRequest{.token_ids = a->tokens, .prompt_length = 70, .credit = 10},
      OutputText({.max_tokens = 10}, 10, tokenizer_.get()));
  names_[again->arrival] = "again";
  scheduler_->Add(std::move(again));
  EXPECT_EQ(Step(), "A 70+1*, again 64+7*");
}

// With random load, plans stay within their limits, and blocks are neither lost nor shared.
TEST_F(BatchSchedulerTest, RandomLoadKeepsTheInvariants) {
  uint32_t state = 1;
  const auto random = [&state](uint32_t limit) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % limit;
  };
  Start(12);
  std::vector<std::string> live;
  for (int step = 0; step < 3000; ++step) {
    if (live.size() < 8 && random(3) == 0) {
      live.push_back(absl::StrCat("s", step));
      Add({.name = live.back(),
           .prompt = 1 + random(100),
           .priority = static_cast<int32_t>(random(3)),
           .credit = random(20)});
    }
    plan_.emplace(scheduler_->Plan(absl::ZeroDuration()));
    ASSERT_LE(plan_->batch.rows(), 64);
    ASSERT_LE(scheduler_->running(), 4);
    std::vector<int32_t> owned;  // blocks that rows are written to
    for (const RowSpan& span : plan_->batch.spans) {
      for (int64_t slot = span.first_slot; slot < span.first_slot + span.rows(); ++slot) {
        const int32_t block = span.blocks[0][slot / kTokens];
        if (owned.empty() || owned.back() != block) owned.push_back(block);
      }
    }
    std::sort(owned.begin(), owned.end());
    ASSERT_EQ(std::adjacent_find(owned.begin(), owned.end()), owned.end());
    for (const EndedSequence& ended : plan_->ended) {
      live.erase(std::find(live.begin(), live.end(), names_[ended.sequence->arrival]));
    }
    if (random(10) == 0) {
      plan_.reset();  // nothing was computed
    } else {
      Commit();
    }
    for (const std::string& name : std::vector<std::string>(live)) {
      Sequence* sequence = sequences_[name];
      if (random(4) == 0) sequence->control->credit.fetch_add(random(10));
      if (random(60) == 0) sequence->control->cancelled = true;
      if (sequence->admitted && sequence->outputs() > static_cast<int64_t>(random(300))) {
        scheduler_->Remove(sequence);
        live.erase(std::find(live.begin(), live.end(), name));
      }
    }
  }
  EXPECT_GT(scheduler_->preemptions(), 10);
  scheduler_->RemoveAll();
  EXPECT_EQ(cache_->blocks_free(), 12);
}

}  // namespace
}  // namespace tidepool::engine
