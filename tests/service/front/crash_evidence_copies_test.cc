// If one prompt has several streams, from one sender or several, a crash near any of them counts
// for all.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/service/front/crash_evidence_fixture.h"

namespace tidepool::service {
namespace {

TEST_F(CrashEvidenceTest, CopiesAreKeptToTwoWorkersUntilOneIsProvenAndToOneAfterACrash) {
  const auto begin = [&](int worker) {
    return evidence_.Begin(
        {.worker = Link(worker), .name = std::string(1, 'a' + worker), .prompt = kPrompt});
  };
  const auto only = [&] {
    std::vector<std::string> names = evidence_.OnlyAt(kPrompt);
    std::sort(names.begin(), names.end());
    return names;
  };
  const std::vector<std::string> any;
  EXPECT_EQ(only(), any);
  auto first = begin(0), copy = begin(0);
  EXPECT_EQ(only(), any);
  auto second = begin(1);
  EXPECT_EQ(only(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(evidence_.OnlyAt(kOther), any);
  Crash(0, {&first, &copy});
  EXPECT_EQ(only(), std::vector<std::string>{"b"});
  second.Reset();
  EXPECT_EQ(only(), any) << "a suspect finds its own worker";
  auto third = begin(2);
  third.OnTokens(CrashEvidence::kMaxUnheard + CrashEvidence::kProvenTokens);
  EXPECT_EQ(evidence_.CrashesOf(kPrompt), 0);
  auto fourth = begin(0), fifth = begin(1), sixth = begin(2);
  EXPECT_EQ(only(), any) << "it is known to be good";
}

TEST_F(CrashEvidenceTest, SendersOfOnePromptShareItsCrashesAndItsVerdict) {
  constexpr uint64_t kMallory = 1001, kBob = 1002, kAlice = 1003;
  const auto crash_of = [&](int worker, uint64_t sender, Suspicion under) {
    auto attempt = evidence_.Begin(
        {.worker = Link(worker), .prompt = kPrompt, .sender = sender, .place = 0, .under = under});
    Crash(worker, {&attempt});
  };
  crash_of(0, kMallory, Suspicion::kNone);
  crash_of(1, kBob, Suspicion::kSuspect);
  clock_.Advance(CrashEvidence::kCalm);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
  const absl::Duration before = clock_.Monotonic();
  crash_of(2, kBob, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  evidence_.Conclude();
  EXPECT_EQ(convictions_[kMallory], 1);
  EXPECT_EQ(convictions_[kBob], 1);
  EXPECT_TRUE(evidence_.ConvictedSince(kPrompt, before));
  EXPECT_FALSE(evidence_.ConvictedSince(kPrompt, clock_.Monotonic() + absl::Seconds(1)));
  // Another stream of the prompt is tried alone, so the prompt can kill only one more worker.
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kCalm);
  crash_of(0, kAlice, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  evidence_.Conclude();
  EXPECT_EQ(convictions_[kAlice], 1);
}

}  // namespace
}  // namespace tidepool::service
