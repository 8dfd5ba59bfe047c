// The cost of planning with many waiting sequences, and that its decisions follow the documented
// rules.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/scheduler/admission_queue.h"
#include "engine/scheduler/admission_turns.h"
#include "engine/scheduler/in_flight_prefixes.h"
#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

class PlanningCostTest : public SchedulerTest {
 protected:
  // One sequence computes the common prefix, and the others wait for this prefix. Returns how many
  // sequences a plan examines.
  int64_t LooksOfAPlan(int waiting, int principals) {
    scheduler_.reset();
    Start(4000);
    const std::vector<int32_t> shared(20 * kTokens, 150);
    for (int i = 0; i <= waiting; ++i) {
      Add({.name = absl::StrCat("r", i),
           .prompt = 10,
           .shared = shared,
           .principal = absl::StrCat("p", i % principals),
           .deadline = absl::Hours(1)});
    }
    Step();
    const int64_t before = scheduler_->looks();
    EXPECT_EQ(Step(), "r0 40+40");
    EXPECT_EQ(scheduler_->waiting(), waiting);
    return scheduler_->looks() - before;
  }

  std::unique_ptr<Sequence> MakeSequence(GenerationRequest request) {
    OutputText text({.max_tokens = 10}, 10, tokenizer_.get());
    return std::make_unique<Sequence>(arrival_++, std::move(request), std::move(text));
  }

  int Draw(int limit) { return static_cast<int>(random_() % limit); }

  std::mt19937 random_{1};
};

TEST_F(PlanningCostTest, APlanLooksAtEachWaitingSequenceTwice) {
  EXPECT_EQ(LooksOfAPlan(1024, /*principals=*/1), 2 * 1024);
  EXPECT_EQ(LooksOfAPlan(2048, /*principals=*/1), 2 * 2048);
  EXPECT_EQ(LooksOfAPlan(2048, /*principals=*/2048), 2 * 2048);
}

TEST_F(PlanningCostTest, ManyNewSequencesAreJudgedInOnePass) {
  Start(4000);
  scheduler_->SetRates({.prompt_rows_per_second = 1e9, .admissions_per_second = 1e9});
  for (int i = 0; i < 1024; ++i) {
    Add({.name = absl::StrCat("r", i), .prompt = 10, .deadline = absl::Hours(1)});
  }
  Plan();
  EXPECT_LE(scheduler_->looks(), 3 * 1024);
}

TEST_F(PlanningCostTest, ManyOfHigherPriorityLookAtEachOtherOnce) {
  Start(4000, {.limits = {.rows = 64, .logit_rows = 32}, .prefill_chunk = 40, .max_sequences = 32});
  for (int i = 0; i < 32; ++i) Add({.name = absl::StrCat("low", i), .prompt = 2});
  Step();
  EXPECT_EQ(scheduler_->running(), 32);
  const int64_t before = scheduler_->looks();
  for (int i = 0; i < 1024; ++i) {
    Add({.name = absl::StrCat("high", i), .prompt = 2, .priority = 1});
  }
  Plan();
  EXPECT_EQ(scheduler_->preemptions(), 32);
  EXPECT_LE(scheduler_->looks() - before, 4 * 1024);
}

TEST_F(PlanningCostTest, ManyEndsLeaveTheOthersInOrder) {
  Start(4000);
  for (int i = 0; i < 1000; ++i) {
    Add({.name = absl::StrCat(i), .prompt = 2});
    sequences_[absl::StrCat(i)]->control->cancelled = i % 4 != 3;
  }
  plan_.emplace(scheduler_->Plan(absl::ZeroDuration()));
  ASSERT_EQ(plan_->ended.size(), 750);
  for (size_t i = 0; i < 750; ++i) {
    EXPECT_EQ(plan_->ended[i].sequence->arrival, i / 3 * 4 + i % 3);
  }
  ASSERT_EQ(plan_->items.size(), 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(plan_->items[i].sequence->arrival, 4 * i + 3);
}

// Tokens are hashed once, even if sequences are checked for deadlines, wait for a prefix or for
// room, or lose their KV.
TEST_F(PlanningCostTest, TokensAreHashedOnce) {
  Start(40, {.limits = {.rows = 64, .logit_rows = 8}, .prefill_chunk = 40, .max_sequences = 1});
  const std::vector<int32_t> shared(10 * kTokens, 150);
  const auto add = [&](int number, absl::Duration deadline) {
    const std::string name = absl::StrCat("r", number);
    Add({.name = name, .prompt = kTokens, .shared = shared, .deadline = deadline});
  };
  std::map<std::string, int> steps;
  const auto finish = [&] {
    while (scheduler_->waiting() + scheduler_->running() > 0) {
      Step();
      for (const auto& [name, sequence] : std::map<std::string, Sequence*>(sequences_)) {
        // Each sequence is not read for a while after it has begun.
        sequence->control->credit = sequence->admitted && steps[name]++ == 0 ? 0 : 1000;
        if (!sequence->admitted || sequence->outputs() < 3) continue;
        scheduler_->Remove(sequence);
        sequences_.erase(name);
      }
    }
  };
  for (int i = 0; i < 10; ++i) add(i, absl::InfiniteDuration());
  finish();
  // The sequence can meet its deadline only because of cached KV.
  scheduler_->SetRates({.prompt_rows_per_second = 1});
  for (int i = 10; i < 50; ++i) add(i, absl::Seconds(100));
  finish();
  EXPECT_EQ(scheduler_->preemptions(), 50);  // each sequence once
  EXPECT_EQ(scheduler_->deadline_refusals(), 0);
  EXPECT_EQ(cache_->blocks_hashed(), 50 * 11);
}

TEST_F(PlanningCostTest, AWaitForRoomHashesNothing) {
  Start(12);
  const std::vector<int32_t> shared(4 * kTokens, 150);
  Add({.name = "A", .prompt = 2 * kTokens, .shared = shared});
  for (int i = 0; i < 5; ++i) Step();
  Add({.name = "B", .prompt = 8 * kTokens, .shared = shared});
  EXPECT_EQ(Step(), "A 192+1*");
  const int64_t before = cache_->blocks_hashed();
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Plan(), "A 193+1*");
  EXPECT_EQ(cache_->blocks_hashed(), before);
}

// Each turn equals the result of examining all remaining sequences.
TEST_F(PlanningCostTest, TurnsFollowTheRule) {
  for (int round = 0; round < 200; ++round) {
    AdmissionQueue queue;
    const int principals = 1 + Draw(6);
    for (int i = 0; i < 30; ++i) {
      auto sequence = MakeSequence({.token_ids = {1},
                                    .prompt_length = 1,
                                    .priority = Draw(3),
                                    .principal = absl::StrCat(Draw(principals))});
      sequence->has_credit = Draw(4) > 0;
      Sequence* added = sequence.get();
      queue.Add(std::move(sequence));
      queue.ChargePrompt(*added, Draw(3));
    }
    AdmissionTurns turns(&queue);
    std::vector<const Sequence*> passed;
    while (true) {
      Sequence* expected = nullptr;
      for (const auto& sequence : queue.sequences()) {
        if (!sequence->has_credit ||
            std::find(passed.begin(), passed.end(), sequence.get()) != passed.end()) {
          continue;
        }
        if (expected == nullptr || sequence->request.priority > expected->request.priority ||
            (sequence->request.priority == expected->request.priority &&
             queue.Served(*sequence) < queue.Served(*expected))) {
          expected = sequence.get();
        }
      }
      Sequence* next = turns.Next();
      ASSERT_EQ(next, expected) << "round " << round;
      if (next == nullptr) break;
      // The sequence is held back, or admitted with or without a charge.
      if (Draw(2) == 0) {
        passed.push_back(next);
      } else {
        if (Draw(2) == 0) queue.ChargePrompt(*next, Draw(5));
        queue.Take(next);
      }
      turns.Pass();
    }
  }
}

TEST_F(PlanningCostTest, QueueAheadFollowsTheRule) {
  for (int round = 0; round < 100; ++round) {
    AdmissionQueue queue;
    for (int i = 0; i < 30; ++i) {
      const int length = 1 + Draw(3);
      auto sequence = MakeSequence({.token_ids = std::vector<int32_t>(length, 1),
                                    .prompt_length = length,
                                    .priority = Draw(3),
                                    .principal = absl::StrCat(Draw(3))});
      sequence->has_credit = Draw(4) > 0;
      queue.Add(std::move(sequence));
    }
    QueueAheadCounter ahead;
    std::vector<const Sequence*> staying;
    for (const auto& sequence : queue.sequences()) {
      const auto before = [&](const Sequence* other) {
        return other->has_credit && (other->request.priority > sequence->request.priority ||
                                     (other->request.principal == sequence->request.principal &&
                                      other->tokens.size() <= sequence->tokens.size()));
      };
      ASSERT_EQ(ahead.Of(*sequence), std::count_if(staying.begin(), staying.end(), before));
      if (Draw(3) == 0) continue;
      ahead.Show(*sequence);
      staying.push_back(sequence.get());
    }
  }
}

// The result is the same as that of comparing tokens.
TEST_F(PlanningCostTest, PrefixesAreInFlightIfTokensAgree) {
  Start(1000);
  const auto draw = [this] {
    auto sequence = MakeSequence({.cache_salt = absl::StrCat(Draw(2))});
    // The first difference, if any, is where the second draw is.
    sequence->tokens.assign(1 + Draw(5 * kTokens), 7);
    sequence->tokens[Draw(static_cast<int>(sequence->tokens.size()))] = 7 + Draw(2);
    sequence->lease = cache_->NewLease(sequence->request.cache_salt);
    return sequence;
  };
  int held = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::unique_ptr<Sequence>> running;
    InFlightPrefixes in_flight;
    for (int i = Draw(4); i > 0; --i) {
      running.push_back(draw());
      Sequence& sequence = *running.back();
      const int64_t slots = Draw(static_cast<int>(sequence.tokens.size()));
      sequence.lease.Reserve(slots)->Keep();
      sequence.lease.Commit(absl::MakeConstSpan(sequence.tokens).first(slots));
      in_flight.Add(&sequence);
    }
    const auto sequence = draw();
    const bool expected =
        std::any_of(running.begin(), running.end(), [&](const std::unique_ptr<Sequence>& other) {
          if (other->request.cache_salt != sequence->request.cache_salt) return false;
          const auto end = std::mismatch(sequence->tokens.begin(), sequence->tokens.end() - 1,
                                         other->tokens.begin(), other->tokens.end());
          const int64_t common = (end.first - sequence->tokens.begin()) / kTokens;
          return other->lease.slots() < common * kTokens;
        });
    ASSERT_EQ(in_flight.Hold(sequence.get()), expected) << "round " << round;
    held += expected;
  }
  EXPECT_GT(held, 300);
  EXPECT_LT(held, 2700);
}

}  // namespace
}  // namespace tidepool::engine
