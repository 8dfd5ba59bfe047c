// Prompts that share steps: plans in the notation of SchedulerTest::Plan, and their cost in rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

class ConcurrentPrefillsTest : public SchedulerTest {
 protected:
  // The options of a server: a step has the rows of one chunk.
  static SchedulerOptions ServerOptions(int64_t chunk) {
    return {.limits = {.rows = chunk, .logit_rows = 8},
            .prefill_chunk = chunk,
            .max_sequences = 8,
            .max_concurrent_prefills = 4};
  }

  int64_t PlannedRows() const { return plan_->batch.rows(); }

  // Computes steps until `name` has its first token. Returns the rows of all these steps.
  int64_t RowsUntilFirstToken(const std::string& name) {
    int64_t rows = 0;
    while (sequences_[name]->outputs() == 0) {
      Plan();
      rows += PlannedRows();
      Commit();
    }
    return rows;
  }
};

TEST_F(ConcurrentPrefillsTest, AShortPromptOvertakesALongOne) {
  Start(100, ServerOptions(40));
  Add({.name = "long", .prompt = 400});
  EXPECT_EQ(Step(), "long 0+40");
  Add({.name = "short", .prompt = 5});
  EXPECT_EQ(Step(), "long 40+35, short 0+5*");
  EXPECT_EQ(Step(), "long 75+39, short 5+1*");
}

// Checks the two limits in rows, because the time of a step is proportional to its rows.
TEST_F(ConcurrentPrefillsTest, AShortPromptWaitsForAtMostAFifthOfALongOne) {
  Start(400, ServerOptions(512));
  scheduler_->SetLimits({.prefill_chunk = 512, .mixed_rows = 47});
  Add({.name = "long", .prompt = 4000});
  Plan();
  int64_t all = PlannedRows();
  Add({.name = "short", .prompt = 20});  // the first step has begun
  Commit();
  const int64_t waited = all + RowsUntilFirstToken("short");
  scheduler_->Remove(sequences_["short"]);
  all = waited + RowsUntilFirstToken("long");
  EXPECT_LE(waited * 5, 4000);
  EXPECT_LE(all * 10, 4000 * 11);
}

TEST_F(ConcurrentPrefillsTest, ShorterPromptsDoNotStarveALongOne) {
  Start(400, ServerOptions(64));
  Add({.name = "long", .prompt = 2000});
  Step();
  int64_t rows = 64;
  for (int i = 0; sequences_["long"]->outputs() == 0; ++i) {
    for (int j = 0; j < 2; ++j) {
      Add({.name = absl::StrCat("s", i, "_", j), .prompt = 60});
    }
    Plan();
    rows += PlannedRows();
    Commit();
    for (const auto& [name, sequence] : std::map<std::string, Sequence*>(sequences_)) {
      if (name == "long" || !sequence->admitted || sequence->outputs() == 0) continue;
      scheduler_->Remove(sequence);
      sequences_.erase(name);
    }
    ASSERT_LT(rows, 5 * 2000);
  }
  EXPECT_GT(rows, 3 * 2000);  // the short prompts delayed the long one
}

// A principal that sends more prompts does not get more rows.
TEST_F(ConcurrentPrefillsTest, PrincipalsShareTheRows) {
  Start(400, ServerOptions(64));
  for (int i = 0; i < 5; ++i) {
    Add({.name = absl::StrCat("a", i), .prompt = 640, .principal = "a"});
  }
  Add({.name = "b", .prompt = 640, .principal = "b"});
  EXPECT_EQ(Step(), "a0 0+32, b 0+32");
  EXPECT_EQ(Step(), "a0 32+32, b 32+32");
}

TEST_F(ConcurrentPrefillsTest, CachedTokensCountAsComputed) {
  Start(100, ServerOptions(64));
  const std::vector<int32_t> shared(10 * kTokens, 150);
  Add({.name = "first", .prompt = 1, .shared = shared});
  RowsUntilFirstToken("first");
  scheduler_->Remove(sequences_["first"]);
  Add({.name = "long", .prompt = 100});
  EXPECT_EQ(Step(), "long 0+64");
  // longer than the other prompts, but its prefix is cached
  Add({.name = "turn", .prompt = 10, .shared = shared});
  EXPECT_EQ(Step(), "long 64+36*, turn 320+10*");
}

TEST_F(ConcurrentPrefillsTest, ASharedPrefixIsComputedOnceAmongOthers) {
  Start(100, ServerOptions(64));
  const std::vector<int32_t> shared(3 * kTokens, 150);
  Add({.name = "long", .prompt = 640, .principal = "x"});
  Step();
  for (const char* name : {"A", "B", "C"}) {
    Add({.name = name, .prompt = 4, .shared = shared, .principal = "y"});
  }
  EXPECT_EQ(Step(), "long 64+32, A 0+32");
  EXPECT_EQ(Step(), "long 96+32, A 32+32");
  EXPECT_EQ(Step(), "long 128+32, A 64+32");
  EXPECT_EQ(Step(), "long 160+52, A 96+4*, B 96+4*, C 96+4*");
}

TEST_F(ConcurrentPrefillsTest, AHigherPriorityTakesTheSlotOfALower) {
  SchedulerOptions options = ServerOptions(40);
  options.max_concurrent_prefills = 1;
  Start(100, options);
  Add({.name = "low", .prompt = 400});
  EXPECT_EQ(Step(), "low 0+40");
  Add({.name = "high", .prompt = 100, .priority = 1});
  EXPECT_EQ(Step(), "high 0+40");
  EXPECT_EQ(Step(), "high 40+40");
  // What low has computed is cached.
  EXPECT_EQ(Step(), "high 80+20*, low 32+20");
  EXPECT_EQ(Step(), "high 100+1*, low 52+39");
  EXPECT_EQ(scheduler_->preemptions(), 1);
}

// With random load, no more prompts are partly computed than allowed, every sequence gets a token,
// blocks are neither lost nor shared, and a lack of KV causes no deadlock.
TEST_F(ConcurrentPrefillsTest, RandomLoadKeepsTheInvariants) {
  uint32_t state = 7;
  const auto random = [&state](uint32_t limit) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % limit;
  };
  for (const int64_t most : {1, 2, 4}) {
    SchedulerOptions options = ServerOptions(64);
    options.max_concurrent_prefills = most;
    plan_.reset();
    Start(24, options);
    std::set<std::string> live;
    int64_t max_at_once = 0;
    for (int step = 0; step < 6000; ++step) {
      if (step < 3000 && live.size() < 12 && random(2) == 0) {
        const std::string name = absl::StrCat("s", most, "_", step);
        live.insert(name);
        Add({.name = name,
             .prompt = 1 + random(random(4) == 0 ? 500 : 60),
             .principal = absl::StrCat(random(3)),
             .priority = static_cast<int32_t>(random(2))});
      }
      if (live.empty() && step >= 3000) break;
      plan_.emplace(scheduler_->Plan(absl::ZeroDuration()));
      ASSERT_LE(PlannedRows(), 64);
      ASSERT_FALSE(live.size() > 0 && plan_->items.empty()) << "step " << step;
      Commit();
      int64_t in_part = 0;
      for (const std::string& name : std::set<std::string>(live)) {
        Sequence* sequence = sequences_[name];
        if (!sequence->admitted) continue;
        in_part += decoder_->PendingRows(*sequence) > 1 && sequence->lease.slots() > 0;
        if (random(60) == 0) sequence->control->cancelled = true;
        if (sequence->control->cancelled || sequence->outputs() <= random(20)) continue;
        scheduler_->Remove(sequence);
        live.erase(name);
      }
      ASSERT_LE(in_part, most) << "step " << step;
      max_at_once = std::max(max_at_once, in_part);
      plan_.emplace(scheduler_->Plan(absl::ZeroDuration()));
      for (const EndedSequence& ended : plan_->ended) live.erase(names_[ended.sequence->arrival]);
      plan_.reset();
    }
    EXPECT_TRUE(live.empty()) << *live.begin();
    EXPECT_EQ(max_at_once, most);
    scheduler_->RemoveAll();
    EXPECT_EQ(cache_->blocks_free(), 24);
  }
}

}  // namespace
}  // namespace tidepool::engine
