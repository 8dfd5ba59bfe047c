// Workers that die of an attempt which they have answered.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/service/front/crash_evidence_fixture.h"

namespace tidepool::service {
namespace {

TEST_F(CrashEvidenceTest, ThreeWorkersThatDieAfterPrepareConvict) {
  Prepare(0, kPrompt, evidence_.Of(kPrompt, 0));
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kNone);
  Crash(0, {});
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kSuspect);
  Prepare(1, kPrompt, Suspicion::kSuspect);
  Crash(1, {});
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kCalm);
  Prepare(2, kPrompt, Suspicion::kAlone);
  EXPECT_EQ(evidence_.AfterTrials(), std::vector<std::string>{"c"});
  Crash(2, {});
  EXPECT_EQ(evidence_.AfterTrials(), std::vector<std::string>());
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_TRUE(Convicted());
  EXPECT_EQ(evidence_.CrashesOf(kPrompt), 3);
}

TEST_F(CrashEvidenceTest, ADeathAfterPrepareDoesNotExcuseTheNext) {
  Prepare(5, kPrompt);
  Crash(5, {});
  clock_.Advance(absl::Seconds(1));
  MakeSuspect();
  CrashOf(2, kPrompt, 0, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_TRUE(Convicted());
}

TEST_F(CrashEvidenceTest, TokensDoNotClearACrashOfPrepare) {
  Prepare(0, kPrompt);
  Crash(0, {});
  clock_.Advance(absl::Seconds(1));
  auto run = Begin(1, kPrompt, 0, Suspicion::kSuspect);
  run.OnTokens(300);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kSuspect);
  // A Prepare does, once its worker is known to live.
  Prepare(1, kPrompt, Suspicion::kSuspect);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kSuspect);
  lives_ = true;
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kNone);
}

TEST_F(CrashEvidenceTest, OnlyAPrepareThatEndedShortlyBeforeTheLastSignOfLifeCounts) {
  Prepare(0, kPrompt);
  heard_ += CrashEvidence::kLinger;
  Crash(0, {});
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kNone);
  // However late the front learns of the death.
  Prepare(1, kPrompt);
  heard_ += CrashEvidence::kLinger - absl::Milliseconds(1);
  clock_.Advance(CrashEvidence::kLongestLinger - absl::Milliseconds(1));
  Crash(1, {});
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kSuspect);
}

TEST_F(CrashEvidenceTest, AnAnswerThatComesAfterItsWorkersDeathCounts) {
  const WorkerSighting seen = Sight(0);
  auto prepare = evidence_.Begin({.worker = Link(0), .prompt = kPrompt, .prepares = true});
  evidence_.OnLost(seen);
  clock_.Advance(absl::Milliseconds(10));
  prepare.End(Sight(0));
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kSuspect);
  EXPECT_EQ(evidence_.CrashesOf(kPrompt), 1);
  evidence_.OnLost(Sight(0));
  EXPECT_EQ(evidence_.CrashesOf(kPrompt), 1);
}

TEST_F(CrashEvidenceTest, AShortResponseAfterWhichItsWorkerDiesIsASuspect) {
  for (int worker = 0; worker < 2; ++worker) {
    auto run = Begin(worker, kPrompt, 0, evidence_.Of(kPrompt, 0));
    run.OnTokens(2);
    heard_ = clock_.Monotonic();
    run.End(Sight(worker));
    Crash(worker, {});
  }
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
}

TEST_F(CrashEvidenceTest, AStreamThatIsProvenOrIdleIsNotASuspectAfterItsEnd) {
  auto proven = Begin(0, kPrompt, 0);
  proven.OnTokens(CrashEvidence::kProvenTokens);
  auto idle = Begin(0, kOther, 0);
  idle.Pause();
  for (auto* attempt : {&proven, &idle}) attempt->End(Sight(0));
  Crash(0, {});
  EXPECT_EQ(evidence_.CrashesOf(kPrompt), 0);
  EXPECT_EQ(evidence_.CrashesOf(kOther), 0);
}

TEST_F(CrashEvidenceTest, ATrialWaitsForWhatEndedLately) {
  Prepare(2, kOther);
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kPrompt), 1);
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kOther), 0);
  EXPECT_EQ(evidence_.UnprovenBeside(Link(1), kPrompt), 0);
  lives_ = true;
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kPrompt), 0);
  // Where nobody knows what became of the worker, not for ever.
  lives_ = false;
  Prepare(2, kOther);
  clock_.Advance(CrashEvidence::kLongestLinger);
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kPrompt), 0);
}

TEST_F(CrashEvidenceTest, WhatWasAnsweredBesideATrialSpoilsIt) {
  MakeSuspect();
  Prepare(2, kOther);
  CrashOf(2, kPrompt, 0, Suspicion::kAlone);
  clock_.Advance(absl::Minutes(2));
  EXPECT_FALSE(Convicted());
}

// Its workers die soon after its Prepare each time, of another cause.
TEST_F(CrashEvidenceTest, KillsAfterPrepareAmongOtherKillsConvictNobody) {
  for (int kill = 0; kill < 50; ++kill) {
    const Suspicion under = evidence_.Of(kPrompt, 0);
    Prepare(2, kPrompt, under);
    Crash(2, {});
    clock_.Advance(absl::Seconds(1));
    evidence_.OnLost(Sight(3 + kill % 5));
    ++process_[3 + kill % 5];
    clock_.Advance(absl::Seconds(6));
    EXPECT_FALSE(Convicted()) << kill;
  }
}

TEST_F(CrashEvidenceTest, OnlyAnIdleStreamWithoutProofIsHeldDuringATrial) {
  auto stream = Begin(2, kOther, 5);
  EXPECT_FALSE(stream.IsUnprovenPause());
  stream.Pause();
  EXPECT_TRUE(stream.IsUnprovenPause());
  stream.Resume();
  EXPECT_FALSE(stream.IsUnprovenPause());
  stream.OnTokens(CrashEvidence::kProvenTokens);
  stream.Pause();
  EXPECT_FALSE(stream.IsUnprovenPause());
}

}  // namespace
}  // namespace tidepool::service
