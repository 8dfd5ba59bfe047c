// CrashEvidence with workers that die just after they have responded to Prepare.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/front/crash_evidence_fixture.h"

namespace tidepool::service {
namespace {

class CrashAfterPrepareTest : public CrashEvidenceTest {
 protected:
  CrashEvidence::Attempt BeginPrepare(int worker, Suspicion under = Suspicion::kNone) {
    return evidence_.Begin({.worker = Link(worker),
                            .name = std::to_string(worker),
                            .prompt = kPrompt,
                            .sender = kPrompt,
                            .prepares = true,
                            .under = under});
  }
  void Prepare(int worker, Suspicion under = Suspicion::kNone) {
    BeginPrepare(worker, under).Answer(Sight(worker));
  }
  void DieAfterPrepare(int worker, Suspicion under = Suspicion::kNone) {
    Prepare(worker, under);
    clock_.Advance(CrashEvidence::kLinger - absl::Milliseconds(1));
    Crash(worker, {});
  }
  // The prompt runs, and its worker survives.
  void RunElsewhere() {
    auto run = Begin(9, kPrompt, 0);
    run.OnTokens(CrashEvidence::kMaxUnheard + CrashEvidence::kProvenTokens);
  }
};

TEST_F(CrashAfterPrepareTest, OneDeathDoesNotCountAndTwoMakeATrial) {
  DieAfterPrepare(0);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kNone);
  EXPECT_EQ(evidence_.CrashesOf(kPrompt), 0);
  RunElsewhere();
  DieAfterPrepare(1);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
  RunElsewhere();
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone) << "tokens say nothing of Prepare";
  clock_.Advance(CrashEvidence::kCalm);
  DieAfterPrepare(2, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_TRUE(Convicted());
  EXPECT_EQ(evidence_.CrashesOf(kPrompt), 3);
}

TEST_F(CrashAfterPrepareTest, ItCountsTogetherWithACrashDuringPrepare) {
  DieAfterPrepare(0);
  auto prepare = BeginPrepare(1);
  Crash(1, {&prepare});
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
}

TEST_F(CrashAfterPrepareTest, ItDoesNotCountTogetherWithACrashOfARun) {
  DieAfterPrepare(0);
  CrashOf(1, kPrompt, 0);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kSuspect);
}

TEST_F(CrashAfterPrepareTest, OneDeathExcusesLikeAnyOther) {
  DieAfterPrepare(5);
  MakeSuspect();
  CrashOf(2, kPrompt, 0, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_FALSE(Convicted());
}

TEST_F(CrashAfterPrepareTest, CopiesStayAtTheWorkerThatWasJustAskedOnceOneDied) {
  RunElsewhere();
  Prepare(0);
  Prepare(1);
  EXPECT_TRUE(evidence_.OnlyAt(kPrompt).empty()) << "it is proven";
  Crash(0, {});
  EXPECT_EQ(evidence_.OnlyAt(kPrompt), std::vector<std::string>{"1"});
  clock_.Advance(CrashEvidence::kLinger);
  EXPECT_TRUE(evidence_.OnlyAt(kPrompt).empty());
}

TEST_F(CrashAfterPrepareTest, ATrialsDeathDoesNotExcuseTheNextTrial) {
  CrashOf(5, kOther, 0);
  DieAfterPrepare(0);
  DieAfterPrepare(1);
  clock_.Advance(CrashEvidence::kCalm);
  DieAfterPrepare(2, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_FALSE(Convicted()) << "the first death excuses it";
  DieAfterPrepare(3, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_TRUE(Convicted());
}

TEST_F(CrashAfterPrepareTest, DeathsAfterAPrepareDoNotExcuseOthersOnceATrialHasCrashed) {
  DieAfterPrepare(3);
  DieAfterPrepare(4);
  clock_.Advance(CrashEvidence::kCalm);
  DieAfterPrepare(5, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_TRUE(Convicted());
  CrashOf(0, kOther, 0);
  CrashOf(1, kOther, 0);
  CrashOf(2, kOther, 0, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  evidence_.Conclude();
  EXPECT_EQ(convictions_[kOther], 1);
}

TEST_F(CrashAfterPrepareTest, ATrialBesideAPromptThatWasJustPreparedIsNotJudged) {
  MakeSuspect();
  evidence_.Begin({.worker = Link(2), .prompt = kOther, .sender = kOther, .prepares = true})
      .Answer(Sight(2));
  CrashOf(2, kPrompt, 0, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_FALSE(Convicted());
}

TEST_F(CrashAfterPrepareTest, ATrialThatHasPassedIsNotJudgedForADeathAfterItsPrepare) {
  MakeSuspect();
  Prepare(2, Suspicion::kAlone);
  {
    auto run = Begin(2, kPrompt, 0, Suspicion::kAlone);
    run.OnTokens(CrashEvidence::kMaxUnheard + CrashEvidence::kProvenTokens);
  }
  Crash(2, {});
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_FALSE(Convicted());
}

TEST_F(CrashAfterPrepareTest, AWorkerThatSurvivesAPrepareClearsIt) {
  DieAfterPrepare(0);
  DieAfterPrepare(1);
  Prepare(2);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kLinger);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kNone);
}

TEST_F(CrashAfterPrepareTest, ADeathLaterIsNotOfThePrepare) {
  for (int worker = 0; worker < 2; ++worker) {
    Prepare(worker);
    clock_.Advance(CrashEvidence::kLinger);
    Crash(worker, {});
  }
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kNone);
}

TEST_F(CrashAfterPrepareTest, AResponseThatComesAfterItsWorkersDeathCounts) {
  for (int worker = 0; worker < 2; ++worker) {
    auto prepare = BeginPrepare(worker);
    const WorkerSighting seen = Sight(worker);
    evidence_.OnLost(seen);
    clock_.Advance(absl::Milliseconds(10));
    prepare.Answer(seen);
    ++process_[worker];
  }
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
}

TEST_F(CrashAfterPrepareTest, ATrialWaitsForOtherPromptsThatWerePreparedThere) {
  Prepare(2);
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kPrompt), 0) << "it is the same prompt";
  EXPECT_EQ(evidence_.UnprovenBeside(Link(1), kOther), 0);
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kOther), 1);
  clock_.Advance(CrashEvidence::kLinger);
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kOther), 0);
}

TEST_F(CrashAfterPrepareTest, ATrialBesideAnUnprovenStreamIsNotJudged) {
  DieAfterPrepare(0);
  DieAfterPrepare(1);
  clock_.Advance(absl::Minutes(1));
  Prepare(2, Suspicion::kAlone);
  auto beside = Begin(2, kOther, 0);
  Crash(2, {&beside});
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_FALSE(Convicted());
}

}  // namespace
}  // namespace tidepool::service
