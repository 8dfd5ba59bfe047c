// Which sequences are admitted, preempted and refused: priorities, fair shares, deadlines,
// prefixes.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/scheduler/fair_preemption.h"
#include "kernels/base/retry_after.h"
#include "tests/engine/scheduler/scheduler_fixture.h"

namespace tidepool::engine {
namespace {

constexpr SchedulerOptions kOneAtATime = {
    .limits = {.rows = 64, .logit_rows = 8}, .prefill_chunk = 40, .max_sequences = 1};

class AdmissionTest : public SchedulerTest {
 protected:
  // Ends the sequence `running`, and computes the next step.
  std::string Next(const std::string& running) {
    scheduler_->Remove(sequences_[running]);
    return Step();
  }

  const absl::Duration now_ = absl::ZeroDuration();
};

TEST_F(AdmissionTest, PrincipalsTakeTurnsWhateverTheNumberOfRequests) {
  Start(100, kOneAtATime);
  for (const char* name : {"a1", "a2", "a3", "a4"}) {
    Add({.name = name, .prompt = 10, .principal = "a"});
  }
  Add({.name = "b1", .prompt = 10, .principal = "b"});
  EXPECT_EQ(Step(), "a1 0+10*");
  Add({.name = "b2", .prompt = 10, .principal = "b"});
  EXPECT_EQ(Next("a1"), "b1 0+10*");
  EXPECT_EQ(Next("b1"), "a2 0+10*");
  EXPECT_EQ(Next("a2"), "b2 0+10*");
  EXPECT_EQ(Next("b2"), "a3 0+10*");
  EXPECT_EQ(Next("a3"), "a4 0+10*");
}

TEST_F(AdmissionTest, LargeRequestsCostTheirPrincipalMore) {
  Start(100, kOneAtATime);
  for (const char* name : {"big1", "big2"}) {
    Add({.name = name, .prompt = 40, .principal = "big"});
  }
  for (const char* name : {"s1", "s2", "s3", "s4"}) {
    Add({.name = name, .prompt = 10, .principal = "small"});
  }
  // A prompt's token costs 1, and an output token costs 2. So each small request costs 12, and the
  // big one 42.
  EXPECT_EQ(Step(), "big1 0+40*");
  EXPECT_EQ(Next("big1"), "s1 0+10*");
  EXPECT_EQ(Next("s1"), "s2 0+10*");
  EXPECT_EQ(Next("s2"), "s3 0+10*");
  EXPECT_EQ(Next("s3"), "s4 0+10*");
  EXPECT_EQ(Next("s4"), "big2 0+40*");
}

TEST_F(AdmissionTest, PriorityComesBeforeFairShare) {
  Start(100, kOneAtATime);
  Add({.name = "first", .prompt = 10, .principal = "a"});
  Add({.name = "low", .prompt = 10, .principal = "b"});
  Add({.name = "high", .prompt = 10, .principal = "a", .priority = 1});
  EXPECT_EQ(Step(), "high 0+10*");
  EXPECT_EQ(Next("high"), "low 0+10*");
  EXPECT_EQ(Next("low"), "first 0+10*");
}

// Among principals with constant demand, none gets ahead of another by more than the bound, and
// every waiting one is served.
TEST_F(AdmissionTest, BackloggedPrincipalsGetEqualService) {
  uint32_t state = 5;
  const auto random = [&state](uint32_t limit) {
    state = state * 1664525 + 1013904223;
    return (state >> 8) % limit;
  };
  Start(64);
  constexpr int64_t kMaxPrompt = 60, kMaxOutput = kPlaceQuantum, kPlaces = 4;
  const std::map<std::string, int> queued = {{"flood", 40}, {"some", 4}, {"few", 2}};
  std::map<std::string, int64_t> served, waiting;
  std::map<std::string, std::string> owner;
  std::map<std::string, int64_t> wanted;  // outputs
  int number = 0;
  for (int step = 0; step < 4000; ++step) {
    for (const auto& [principal, depth] : queued) {
      while (waiting[principal] < depth) {
        const std::string name = absl::StrCat("r", number++);
        // The principal "flood" sends the smallest requests.
        const int64_t prompt = 1 + random(principal == "flood" ? 8 : kMaxPrompt);
        Add({.name = name, .prompt = prompt, .principal = principal});
        owner[name] = principal;
        wanted[name] = 1 + random(principal == "flood" ? 4 : kMaxOutput);
        ++waiting[principal];
      }
    }
    Plan();
    for (size_t i = 0; i < plan_->items.size(); ++i) {
      const RowSpan& span = plan_->batch.spans[i];
      const std::string& principal = owner[names_[plan_->items[i].sequence->arrival]];
      if (span.first_slot == 0) {
        --waiting[principal];
        served[principal] += plan_->items[i].sequence->request.prompt_length;
      }
      served[principal] += FairShare::kOutputCost * static_cast<int64_t>(span.logit_rows.size());
    }
    Commit();
    for (const auto& [name, sequence] : std::map<std::string, Sequence*>(sequences_)) {
      if (!sequence->admitted || sequence->outputs() < wanted[name]) continue;
      scheduler_->Remove(sequence);
      sequences_.erase(name);
    }
    const auto [least, most] =
        std::minmax_element(served.begin(), served.end(),
                            [](const auto& a, const auto& b) { return a.second < b.second; });
    ASSERT_LE(most->second - least->second,
              2 * std::max(kMaxPrompt, FairShare::kOutputCost * kPlaces * kMaxOutput))
        << "step " << step << ": " << most->first << " is ahead of " << least->first;
  }
  EXPECT_EQ(scheduler_->preemptions(), 0);
  for (const auto& [principal, cost] : served) EXPECT_GT(cost, 10000) << principal;
}

TEST_F(AdmissionTest, AHigherPriorityPreemptsALowerOne) {
  Start(100, {.limits = {.rows = 64, .logit_rows = 8}, .prefill_chunk = 40, .max_sequences = 2});
  Add({.name = "low", .prompt = 5, .priority = -1});
  Add({.name = "mid", .prompt = 5});
  EXPECT_EQ(Step(), "mid 0+5*, low 0+5*");
  Add({.name = "equal", .prompt = 5, .priority = -1});
  EXPECT_EQ(Step(), "mid 5+1*, low 5+1*");  // a sequence of equal priority waits
  Add({.name = "high", .prompt = 5, .priority = 1});
  EXPECT_EQ(Step(), "high 0+5*, mid 6+1*");
  EXPECT_EQ(scheduler_->preemptions(), 1);
  scheduler_->Remove(sequences_["high"]);
  EXPECT_EQ(Step(), "mid 7+1*, low 0+7*");  // recomputed, before the later one of equal priority
}

TEST_F(AdmissionTest, AHigherPriorityTakesBlocksFromLowerOnes) {
  Start(8);
  Add({.name = "A", .prompt = 2 * kTokens});
  Add({.name = "B", .prompt = 2 * kTokens});
  Step(), Step();
  EXPECT_EQ(Step(), "A 64+1*, B 64+1*");
  EXPECT_EQ(cache_->blocks_free(), 2);
  Add({.name = "high", .prompt = 4 * kTokens, .priority = 1});
  EXPECT_EQ(Step(), "high 0+40, A 65+1*");  // B was last in order, and is enough
  EXPECT_EQ(scheduler_->preemptions(), 1);
}

TEST_F(AdmissionTest, PreemptsOnlyIfThatMakesEnoughRoom) {
  Start(8);
  Add({.name = "high", .prompt = 4 * kTokens, .priority = 1});
  Add({.name = "low", .prompt = kTokens});
  for (int i = 0; i < 4; ++i) Step();
  Add({.name = "wide", .prompt = 4 * kTokens, .priority = 1});  // high holds five of the eight
  EXPECT_EQ(Step(), "high 128+1*, low 34+1*");
  EXPECT_EQ(scheduler_->preemptions(), 0);
}

TEST_F(AdmissionTest, MixedStepsTakeFewerPromptRows) {
  Start(100);
  Add({.name = "A", .prompt = 3});
  Add({.name = "B", .prompt = 100});
  Add({.name = "C", .prompt = 100});
  scheduler_->SetLimits({.prefill_chunk = 40, .mixed_rows = 20});
  EXPECT_EQ(Step(), "A 0+3*, B 0+13, C 0+6");  // A waits for its first token
  EXPECT_EQ(Step(), "A 3+1*, B 13+20");
  EXPECT_EQ(Step(), "A 4+1*, B 33+20");
  scheduler_->Remove(sequences_["A"]);
  EXPECT_EQ(Step(), "B 53+40, C 6+24");
}

TEST_F(AdmissionTest, ASharedPrefixIsComputedOnce) {
  Start(100);
  const std::vector<int32_t> shared(2 * kTokens + 5, 150);
  for (const char* name : {"A", "B", "C"}) Add({.name = name, .prompt = 10, .shared = shared});
  Add({.name = "other", .prompt = 4});
  // B and C wait for A's blocks. A sequence without a shared prefix does not wait.
  EXPECT_EQ(Step(), "A 0+40, other 0+4*");
  EXPECT_EQ(Step(), "A 40+39*, other 4+1*");
  EXPECT_EQ(Step(), "A 79+1*, B 64+15*, C 64+15*, other 5+1*");
}

TEST_F(AdmissionTest, DoesNotWaitForAPrefixThatIsNotComputed) {
  Start(100);
  const std::vector<int32_t> shared(3 * kTokens, 150);
  Add({.name = "A", .prompt = 10, .shared = shared});
  Add({.name = "B", .prompt = 10, .shared = shared});
  EXPECT_EQ(Step(), "A 0+40");
  sequences_["A"]->control->credit = 0;
  EXPECT_EQ(Step(), "B 32+40");
  // A sequence does not wait for a prefix with another salt either, because it must not use that
  // KV.
  auto salted = std::make_unique<Sequence>(
      arrival_++,
      GenerationRequest{.token_ids = shared,
                        .prompt_length = static_cast<int64_t>(shared.size()),
                        .principal = "x",
                        .cache_salt = "x"},
      OutputText({.max_tokens = 10}, 10, tokenizer_.get()));
  names_[salted->arrival] = "salted";
  scheduler_->Add(std::move(salted));
  EXPECT_EQ(Step(), "B 72+32, salted 0+32");
}

TEST_F(AdmissionTest, RefusesADeadlineThatAnIdleEngineWouldMiss) {
  Start(100);
  scheduler_->SetRates({.prompt_rows_per_second = 100});
  // The estimate is half of the measured time: 80 rows take at least 0.4 s.
  Add({.name = "hopeless", .prompt = 80, .deadline = now_ + absl::Milliseconds(399)});
  Add({.name = "bold", .prompt = 80, .deadline = now_ + absl::Milliseconds(401)});
  EXPECT_EQ(Plan(), "hopeless! DEADLINE_EXCEEDED, bold 0+40");
  EXPECT_EQ(
      plan_->ended[0].status.message(),
      "refused: the deadline is in 399ms, and a prompt of 80 tokens takes at least 400ms; set a "
      "longer deadline");
  EXPECT_EQ(scheduler_->deadline_refusals(), 1);
  Commit();
  Plan(now_ + absl::Milliseconds(400));  // accepted, so it is not refused later
  EXPECT_TRUE(plan_->ended.empty());
}

TEST_F(AdmissionTest, DeadlinesDoNotCountCachedTokens) {
  Start(100);
  const std::vector<int32_t> shared(4 * kTokens, 150);
  Add({.name = "A", .prompt = 1, .shared = shared});
  for (int i = 0; i < 4; ++i) Step();
  scheduler_->SetRates({.prompt_rows_per_second = 100});
  Add({.name = "B", .prompt = 1, .shared = shared, .deadline = now_ + absl::Milliseconds(100)});
  EXPECT_EQ(Plan(), "A 129+1*, B 128+1*");
}

TEST_F(AdmissionTest, RefusesADeadlineShorterThanTheQueueWithAHint) {
  Start(100, kOneAtATime);
  Add({.name = "runs", .prompt = 1, .principal = "a"});
  Step();
  for (int i = 0; i < 4; ++i) Add({.name = absl::StrCat("w", i), .prompt = 1, .principal = "a"});
  Step();
  scheduler_->SetRates({.admissions_per_second = 1});
  // Four requests are ahead of this one, and take at least two seconds.
  Add({.name = "late", .principal = "a", .deadline = now_ + absl::Milliseconds(1900)});
  // This is the first sequence of another principal, so no sequence is certainly planned before it.
  Add({.name = "other", .principal = "b", .deadline = now_ + absl::Milliseconds(1900)});
  EXPECT_EQ(Plan(), "late! RESOURCE_EXHAUSTED, runs 2+1*");
  EXPECT_EQ(plan_->ended[0].status.message(),
            "refused at once: the deadline is in 1.9s, and the 4 requests ahead of this one take "
            "at least 2s; retry later, or set a longer deadline");
  EXPECT_EQ(base::RetryAfterOf(plan_->ended[0].status), absl::Seconds(2));
}

TEST_F(AdmissionTest, SequencesWithoutCreditAreNotAhead) {
  Start(100, kOneAtATime);
  Add({.name = "runs", .prompt = 1, .principal = "a"});
  Step();
  for (int i = 0; i < 4; ++i) {
    Add({.name = absl::StrCat("w", i), .prompt = 1, .principal = "a", .credit = 0});
  }
  scheduler_->SetRates({.admissions_per_second = 1});
  Add({.name = "late", .principal = "a", .deadline = now_ + absl::Milliseconds(1900)});
  EXPECT_EQ(Plan(), "runs 1+1*");
}

// Another worker has already accepted the sequence.
TEST_F(AdmissionTest, ASequenceThatHasBegunIsNotJudgedAgain) {
  Start(100);
  scheduler_->SetRates({.prompt_rows_per_second = 100});
  Add({.name = "moved", .prompt = 80, .outputs = 1, .deadline = now_ + absl::Milliseconds(1)});
  EXPECT_EQ(Plan(), "moved 0+40");
}

TEST_F(AdmissionTest, RetryHintIsAtMostAnHour) {
  Start(100, kOneAtATime);
  Add({.name = "runs", .prompt = 1, .principal = "a"});
  Step();
  Add({.name = "first", .principal = "a"});
  scheduler_->SetRates({.admissions_per_second = 1e-300});
  Add({.name = "late", .principal = "a", .deadline = now_ + absl::Hours(1)});
  EXPECT_EQ(Plan(), "late! RESOURCE_EXHAUSTED, runs 1+1*");
  EXPECT_EQ(base::RetryAfterOf(plan_->ended[0].status), absl::Hours(1));
}

// If a client stops reading again and again, its principal pays for each recomputation of the
// prompt.
TEST_F(AdmissionTest, ChargesAgainAfterPreemptionForLackOfCredit) {
  Start(100, kOneAtATime);
  Add({.name = "unread", .prompt = 20, .principal = "a", .credit = 1});
  Add({.name = "b1", .prompt = 10, .principal = "b"});
  EXPECT_EQ(Step(), "unread 0+20*");  // a: 22
  EXPECT_EQ(Step(), "b1 0+10*");      // b1 takes a's place; b has paid 12
  sequences_["unread"]->control->credit = 1;
  Add({.name = "a2", .prompt = 1, .principal = "a"});
  Add({.name = "b2", .prompt = 10, .principal = "b"});  // b returns with a's count of 22
  Add({.name = "b3", .prompt = 1, .principal = "b"});
  EXPECT_EQ(Next("b1"), "unread 0+21*");  // a: 22 + 23
  EXPECT_EQ(Next("unread"), "b2 0+10*");  // b: 22 + 12
  EXPECT_EQ(Next("b2"), "b3 0+1*");
}

TEST_F(AdmissionTest, RefusesNothingBeforeRatesAreMeasured) {
  Start(100);
  Add({.name = "A", .prompt = 1000, .deadline = now_ + absl::Nanoseconds(1)});
  EXPECT_EQ(Plan(), "A 0+40");
}

}  // namespace
}  // namespace tidepool::engine
