// Which sequences give up their places to a waiting principal: plans in the notation of
// SchedulerTest::Plan.
#include "engine/scheduler/fair_preemption.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/engine_fixture.h"
#include "tests/engine/scheduler/kv_restores_fixture.h"
#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

// A scheduler with four places.
class FairPreemptionTest : public SchedulerTest {
 protected:
  void AddMany(const std::string& principal, int count, int64_t prompt = 5) {
    for (int i = 1; i <= count; ++i) {
      Add({.name = absl::StrCat(principal, i), .prompt = prompt, .principal = principal});
    }
  }
  void Steps(int count) {
    for (int i = 0; i < count; ++i) Step();
  }
  // Returns the principals of the running sequences, in order.
  std::string Running() const {
    std::string running;
    for (const auto& [name, sequence] : sequences_) {
      if (sequence->admitted) running += name.substr(0, 1);
    }
    return running;
  }
};

TEST_F(FairPreemptionTest, AWaitingPrincipalPreemptsTheNewestSequence) {
  Start(100);
  AddMany("a", 6);
  Steps(40);
  EXPECT_EQ(Running(), "aaaa");
  Add({.name = "b1", .prompt = 3, .principal = "b"});
  EXPECT_EQ(Step(), "a1 44+1*, a2 44+1*, a3 44+1*, b1 0+3*");
  Steps(3);
  // When b has ended, the preempted sequence comes before those that never ran. Whole blocks that
  // it had computed are cached.
  scheduler_->Remove(sequences_["b1"]);
  sequences_.erase("b1");
  EXPECT_EQ(Step(), "a1 48+1*, a2 48+1*, a3 48+1*, a4 32+13*");
  EXPECT_EQ(scheduler_->preemptions(), 1);
}

TEST_F(FairPreemptionTest, EachKeepsItsPlaceForAQuantum) {
  Start(100);
  AddMany("a", 4);
  Step();
  Add({.name = "b1", .prompt = 3, .principal = "b"});
  for (int64_t made = 1; made < kPlaceQuantum; ++made) {
    Step();
    EXPECT_FALSE(sequences_["b1"]->admitted) << made;
  }
  Step();
  EXPECT_TRUE(sequences_["b1"]->admitted);
  EXPECT_FALSE(sequences_["a4"]->admitted);
}

// After a resumed sequence was recomputed, it may first generate a number of tokens in proportion
// to the cost of this.
TEST_F(FairPreemptionTest, TheQuantumGrowsWithTheCostOfTheAdmission) {
  Start(200, {.limits = {.rows = 512, .logit_rows = 8}, .prefill_chunk = 512, .max_sequences = 1});
  Add({.name = "a1", .prompt = 400, .principal = "a"});
  Step();
  EXPECT_EQ(PlaceQuantum(*sequences_["a1"]), 400 / kRecomputeShare);
  Add({.name = "b1", .prompt = 8, .principal = "b"});
  // Both principals hold at most one place, so they take turns.
  while (!sequences_["b1"]->admitted) Step();
  EXPECT_EQ(sequences_["a1"]->outputs(), kOnlyPlaceQuanta * 400 / kRecomputeShare);
  Add({.name = "b2", .prompt = 8, .principal = "b"});
  while (!sequences_["a1"]->admitted) Step();
  EXPECT_EQ(sequences_["b1"]->outputs(), kOnlyPlaceQuanta * kPlaceQuantum);
}

TEST_F(FairPreemptionTest, RequestsOfOnePrincipalDoNotPreemptEachOther) {
  Start(100);
  AddMany("a", 8);
  Steps(300);
  EXPECT_EQ(scheduler_->preemptions(), 0);
}

TEST_F(FairPreemptionTest, SharesConverge) {
  Start(400);
  AddMany("a", 8);
  Steps(20);
  AddMany("b", 8);
  Steps(200);
  EXPECT_EQ(Running(), "aabb");
  EXPECT_EQ(scheduler_->preemptions(), 2);
  AddMany("c", 8);
  Steps(200);
  // Three principals have four places. The principal with two places keeps them.
  EXPECT_EQ(std::set<char>({'a', 'b', 'c'}), [this] {
    const std::string running = Running();
    return std::set<char>(running.begin(), running.end());
  }());
  EXPECT_EQ(scheduler_->preemptions(), 3);
}

// With more principals than places, each one generates tokens within one round of turns.
TEST_F(FairPreemptionTest, MorePrincipalsThanPlacesTakeTurns) {
  Start(4000);
  for (int i = 0; i < 7; ++i) {
    const std::string principal(1, static_cast<char>('a' + i));
    Add({.name = principal, .prompt = 5, .principal = principal, .credit = 100000});
  }
  std::map<std::string, int64_t> before;
  for (int round = 0; round < 4; ++round) {
    // Two rounds of turns.
    Steps(2 * 2 * kOnlyPlaceQuanta * kPlaceQuantum);
    for (const auto& [name, sequence] : sequences_) {
      EXPECT_GT(sequence->outputs(), before[name]) << name;
      before[name] = sequence->outputs();
    }
  }
  // Each sequence keeps its place for a turn.
  EXPECT_LE(scheduler_->preemptions(), 4 * 2 * 2 * 4);
}

TEST_F(FairPreemptionTest, PriorityIsStrict) {
  Start(100);
  for (int i = 1; i <= 4; ++i) {
    Add({.name = absl::StrCat("a", i), .prompt = 5, .principal = "a", .priority = 1});
  }
  Add({.name = "b1", .prompt = 3, .principal = "b"});
  Steps(100);
  EXPECT_EQ(Running(), "aaaa");
  EXPECT_EQ(scheduler_->preemptions(), 0);
}

TEST_F(FairPreemptionTest, KvBlocksAreSharedFairlyToo) {
  Start(12);
  AddMany("a", 3, 3 * kTokens);
  Steps(30);
  EXPECT_EQ(cache_->blocks_free(), 0);
  Add({.name = "b1", .prompt = 2 * kTokens, .principal = "b"});
  EXPECT_EQ(Step(), "a1 123+1*, a2 122+1*, b1 0+40");
  EXPECT_EQ(scheduler_->preemptions(), 1);
  Add({.name = "b2", .prompt = 6 * kTokens, .principal = "b"});  // no sequence is preempted in vain
  Steps(3);
  EXPECT_EQ(Running(), "aab");
}

// A large request of the principal with the most places does not block others.
TEST_F(FairPreemptionTest, ASequenceThatIsOwedAPlaceOvertakes) {
  Start(12);
  AddMany("a", 3, 3 * kTokens);
  Steps(30);
  Add({.name = "large", .prompt = 10 * kTokens, .principal = "a"});
  Steps(1);
  Add({.name = "b1", .prompt = 2, .principal = "b"});
  Steps(1);
  EXPECT_TRUE(sequences_["b1"]->admitted);
  EXPECT_FALSE(sequences_["large"]->admitted);
}

using FairRestoreTest = KvRestoresTest;

// A place was freed for a sequence whose KV is read. No other sequence takes this place.
TEST_F(FairRestoreTest, KeepsAPlaceForASequenceWhoseKvIsRead) {
  const std::vector<int32_t> shared = StartWithPrefixOnDisk(40);
  for (const char* name : {"a1", "a2", "a3", "a4", "a5"}) {
    Add({.name = name, .prompt = 5, .principal = "a"});
  }
  for (int i = 0; i < 20; ++i) Step();
  fake_.Hold();
  Add({.name = "b", .prompt = 8, .shared = shared, .principal = "b"});
  for (int i = 0; i < 5; ++i) Step();
  EXPECT_EQ(scheduler_->preemptions(), 1);
  EXPECT_EQ(scheduler_->running(), 3);
  LetRead(4);
  Step();
  EXPECT_TRUE(sequences_["b"]->admitted);
  EXPECT_EQ(sequences_["b"]->admission.cached_tokens, 4 * kTokens);
  EXPECT_EQ(scheduler_->preemptions(), 1);
}

std::vector<int32_t> Prompt(int64_t length, int32_t which) {
  std::vector<int32_t> tokens(length);
  for (int64_t i = 0; i < length; ++i) {
    tokens[i] = static_cast<int32_t>((which * 37 + i * i) % 256);
  }
  return tokens;
}

// One principal's long streams hold all places. Another one's request still gets its tokens, and
// the streams' tokens do not change.
TEST(EngineFairnessTest, PreemptedStreamsGiveTheSameTokens) {
  EngineOptions options = MakeOptions();
  options.max_sequences = 4;
  TestEngine test(options);
  test.model.Hold();
  std::vector<GenerationRequest> requests;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 6; ++i) {
    GenerationRequest request = MakeRequest(Prompt(70 + i, i), 200);
    request.principal = "a";
    request.sampling.temperature = 1;
    request.sampling.seed = i;
    requests.push_back(request);
    streams.push_back(test.Submit(request));
  }
  test.model.Allow(60);
  test.model.WaitForForwards(61);
  GenerationRequest other = MakeRequest(Prompt(9, 7), 4);
  other.principal = "b";
  const auto waiting = test.Submit(other);
  // Allows the current step, and one step for each token of the request.
  test.model.Allow(5);
  EXPECT_EQ(ReadAll(waiting.get()).tokens.size(), 4u);
  EXPECT_LE(test.model.forwards(), 66);
  EXPECT_EQ(test.engine->Stats().requests_finished, 1);
  test.model.Release();
  TestEngine alone;
  for (int i = 0; i < 6; ++i) {
    const Answer answer = ReadAll(streams[i].get());
    EXPECT_EQ(answer.tokens, alone.Run(requests[i]).tokens) << i;
    EXPECT_EQ(answer.tokens.size(), 200u);
  }
  EXPECT_GE(test.engine->Stats().preemptions, 1);
}

}  // namespace
}  // namespace tidepool::engine
