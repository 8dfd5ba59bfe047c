// The rule by which CrashEvidence distinguishes a prompt that crashes workers from one that was
// only near crashes.
#include "service/front/crash_evidence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/service/front/crash_evidence_fixture.h"

namespace tidepool::service {
namespace {

TEST_F(CrashEvidenceTest, TwoCrashesNearItMakeATrialAndTheThirdConvicts) {
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kNone);
  CrashOf(0, kPrompt, 0);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kSuspect);
  CrashOf(1, kPrompt, 0);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
  EXPECT_GT(evidence_.CalmIn(kPrompt, clock_.Monotonic()), absl::ZeroDuration());
  clock_.Advance(CrashEvidence::kCalm);
  EXPECT_EQ(evidence_.CalmIn(kPrompt, clock_.Monotonic()), absl::ZeroDuration());
  CrashOf(2, kPrompt, 0, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter - absl::Milliseconds(1));
  EXPECT_FALSE(Convicted());
  EXPECT_GT(evidence_.CalmIn(kOther, clock_.Monotonic()), absl::ZeroDuration())
      << "no other trial while a verdict is open";
  clock_.Advance(absl::Milliseconds(1));
  EXPECT_TRUE(Convicted());
  EXPECT_EQ(evidence_.CrashesOf(kPrompt), 3);
  evidence_.Conclude();
  EXPECT_EQ(convictions_[kPrompt], 1);
}

TEST_F(CrashEvidenceTest, ConvictsWithoutACallThatWaits) {
  MakeSuspect();
  CrashOf(2, kPrompt, 0, Suspicion::kAlone);
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(evidence_.Of(kOther, 0), Suspicion::kNone);
  EXPECT_EQ(convictions_[kPrompt], 1);
}

TEST_F(CrashEvidenceTest, NoNumberOfCrashesBesideOthersConvicts) {
  for (int crash = 0; crash < 50; ++crash) {
    auto beside = Begin(2, kOther, 0);
    auto attempt = Begin(2, kPrompt, 0, Suspicion::kAlone);
    Crash(2, {&attempt, &beside});
    clock_.Advance(absl::Minutes(2));
    EXPECT_FALSE(Convicted()) << crash;
  }
}

TEST_F(CrashEvidenceTest, StreamsThatAreProvenDoNotSpoilATrial) {
  auto beside = Begin(2, kOther, 5);
  beside.OnTokens(CrashEvidence::kProvenTokens - 1);
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kPrompt), 1);
  beside.OnTokens(1);
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kPrompt), 0);
  auto idle = Begin(2, kOther + 1, 0);
  idle.Pause();
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kPrompt), 0);
  idle.Resume();
  EXPECT_EQ(evidence_.UnprovenBeside(Link(2), kPrompt), 1);
  idle.Pause();
  MakeSuspect();
  auto attempt = Begin(2, kPrompt, 0, Suspicion::kAlone);
  Crash(2, {&attempt, &beside, &idle});
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_TRUE(Convicted());
}

TEST_F(CrashEvidenceTest, OnlyAPausedStreamWithoutProofHasAnUnprovenPause) {
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

TEST_F(CrashEvidenceTest, EightTokensPastThePlaceClearIt) {
  MakeSuspect(/*place=*/300);
  EXPECT_EQ(evidence_.Of(kPrompt, 299), Suspicion::kNone) << "not there yet";
  auto attempt = Begin(2, kPrompt, 300, Suspicion::kAlone);
  attempt.OnTokens(CrashEvidence::kProvenTokens - 1);
  EXPECT_EQ(evidence_.Of(kPrompt, 307), Suspicion::kAlone);
  attempt.OnTokens(1);
  EXPECT_EQ(evidence_.Of(kPrompt, 300), Suspicion::kNone);
}

// The worker dies minutes later, when only proven streams run beside this stream.
TEST_F(CrashEvidenceTest, AStreamThatPassedItsTrialIsNotJudgedAnyMore) {
  MakeSuspect();
  auto attempt = Begin(2, kPrompt, 0, Suspicion::kAlone);
  auto beside = Begin(2, kOther, 0);
  beside.OnTokens(CrashEvidence::kProvenTokens);
  for (int token = 0; token < 20; ++token) {
    clock_.Advance(absl::Milliseconds(250));
    attempt.OnTokens(1);
  }
  EXPECT_EQ(evidence_.Of(kPrompt, 20), Suspicion::kNone);
  clock_.Advance(absl::Minutes(2));
  Crash(2, {&attempt, &beside});
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_FALSE(Convicted());
}

TEST_F(CrashEvidenceTest, TheLastTokensOfALostWorkerDoNotHideThePlace) {
  // the worker died at position 300, but its last two tokens never arrived
  CrashOf(0, kPrompt, 298);
  CrashOf(1, kPrompt, 300);
  clock_.Advance(CrashEvidence::kCalm);
  EXPECT_EQ(evidence_.Of(kPrompt, 300), Suspicion::kAlone);
  CrashOf(2, kPrompt, 300, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_TRUE(Convicted());
}

// The prompt kills its worker at token 20. The worker generates a token each millisecond, so more
// than 8 tokens never arrive at the front.
TEST_F(CrashEvidenceTest, TokensThatNeverArrivedDoNotMoveTheCrash) {
  auto first = Begin(0, kPrompt, 0);
  clock_.Advance(absl::Milliseconds(20));
  Crash(0, {&first});
  auto second = Begin(1, kPrompt, 0, evidence_.Of(kPrompt, 0));
  for (int token = 0; token < 12; ++token) {
    clock_.Advance(absl::Milliseconds(1));
    second.OnTokens(1);
  }
  clock_.Advance(absl::Milliseconds(8));
  Crash(1, {&second});
  EXPECT_EQ(evidence_.Of(kPrompt, 12), Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kCalm);
  auto third = Begin(2, kPrompt, 12, Suspicion::kAlone);
  clock_.Advance(absl::Milliseconds(8));
  Crash(2, {&third});
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_TRUE(Convicted());
}

TEST_F(CrashEvidenceTest, AFastStreamThatContinuesIsCleared) {
  // The worker generates a token each millisecond. So 250 tokens may be missing at the front, and 8
  // more tokens are the proof.
  for (const auto& [tokens, suspicion] :
       {std::pair(257, Suspicion::kAlone), std::pair(264, Suspicion::kSuspect)}) {
    SCOPED_TRACE(tokens);
    CrashEvidence evidence(
        &clock_, [](const WorkerSighting&) { return Fate::kGone; }, [](uint64_t) {});
    const auto crash = [&](CrashEvidence::Attempt* attempt, uint64_t process) {
      evidence.OnCrash(attempt, {.link = nullptr, .process_id = process, .at = clock_.Monotonic()});
    };
    auto first = evidence.Begin({.prompt = kPrompt, .place = 0});
    clock_.Advance(absl::Seconds(20));
    crash(&first, 1);
    auto second = evidence.Begin({.prompt = kPrompt, .place = 0, .under = Suspicion::kSuspect});
    for (int token = 0; token < tokens; ++token) {
      clock_.Advance(absl::Milliseconds(1));
      second.OnTokens(1);
    }
    // Other streams no longer wait for this one.
    EXPECT_EQ(evidence.Of(kPrompt, tokens), Suspicion::kNone);
    crash(&second, 2);
    EXPECT_EQ(evidence.Of(kPrompt, tokens), suspicion);
  }
}

TEST_F(CrashEvidenceTest, AStreamThatRanBeforeTheCrashClearsNothing) {
  auto running = Begin(2, kPrompt, 0);
  running.OnTokens(300);
  clock_.Advance(absl::Seconds(1));
  MakeSuspect();
  running.OnTokens(300);
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
}

TEST_F(CrashEvidenceTest, OneProcessCrashesOnce) {
  auto one = Begin(0, kPrompt, 0), two = Begin(0, kPrompt, 0);
  Crash(0, {&one, &two});
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kSuspect) << "two streams of one prompt";
}

TEST_F(CrashEvidenceTest, ABrokenConnectionIsDropped) {
  MakeSuspect();
  CrashOf(2, kPrompt, 0, Suspicion::kAlone);
  lives_ = true;
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kNone);
  clock_.Advance(absl::Minutes(1));
  EXPECT_FALSE(Convicted());
}

TEST_F(CrashEvidenceTest, AnotherWorkersDeathExcuses) {
  for (const absl::Duration before : {absl::Seconds(59), absl::Seconds(3), absl::ZeroDuration()}) {
    const uint64_t prompt = kPrompt + 100 + static_cast<uint64_t>(absl::ToInt64Seconds(before));
    CrashOf(5, kOther, 0);
    clock_.Advance(before);
    CrashOf(0, prompt, 0);
    CrashOf(1, prompt, 0);
    CrashOf(2, prompt, 0, Suspicion::kAlone);
    clock_.Advance(CrashEvidence::kAfter);
    evidence_.Conclude();
    EXPECT_EQ(convictions_[prompt], 0) << before;
    // The prompt is still a suspect, and this death excuses nothing more.
    EXPECT_EQ(evidence_.Of(prompt, 0), Suspicion::kAlone);
    CrashOf(3, prompt, 0, Suspicion::kAlone);
    clock_.Advance(CrashEvidence::kAfter);
    evidence_.Conclude();
    EXPECT_EQ(convictions_[prompt], 1) << before;
    clock_.Advance(absl::Minutes(5));
  }
}

TEST_F(CrashEvidenceTest, TheDeathOfAnIdleWorkerAfterwardsExcuses) {
  MakeSuspect();
  CrashOf(2, kPrompt, 0, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter - absl::Milliseconds(1));
  evidence_.OnLost(Sight(4));
  clock_.Advance(absl::Seconds(1));
  EXPECT_FALSE(Convicted()) << "not known yet whether only its connection broke";
  clock_.Advance(CrashEvidence::kSignOfLife);
  EXPECT_FALSE(Convicted());
  EXPECT_EQ(evidence_.Of(kPrompt, 0), Suspicion::kAlone);
}

TEST_F(CrashEvidenceTest, DeathsLongAgoDoNotExcuse) {
  CrashOf(5, kOther, 0);
  clock_.Advance(CrashEvidence::kBefore);
  MakeSuspect();
  CrashOf(2, kPrompt, 0, Suspicion::kAlone);
  clock_.Advance(CrashEvidence::kAfter);
  EXPECT_TRUE(Convicted());
}

TEST_F(CrashEvidenceTest, TwoPoisonsDoNotExcuseEachOtherForLong) {
  int kills = 0;
  const auto crash = [&](int worker, uint64_t prompt, Suspicion under) {
    CrashOf(worker, prompt, 0, under);
    ++kills;
  };
  for (const uint64_t prompt : {kPrompt, kOther}) {
    crash(static_cast<int>(prompt), prompt, Suspicion::kNone);
    crash(static_cast<int>(prompt), prompt, Suspicion::kNone);
  }
  for (int trial = 0; trial < 10; ++trial) {
    for (const uint64_t prompt : {kPrompt, kOther}) {
      if (convictions_[prompt] > 0) continue;
      const absl::Duration since = clock_.Monotonic();
      while (evidence_.CalmIn(prompt, since) > absl::ZeroDuration()) {
        clock_.Advance(absl::Milliseconds(250));
      }
      if (convictions_[prompt] == 0) crash(static_cast<int>(prompt), prompt, Suspicion::kAlone);
    }
  }
  EXPECT_EQ(convictions_[kPrompt], 1);
  EXPECT_EQ(convictions_[kOther], 1);
  EXPECT_LE(kills, 8);
}

TEST_F(CrashEvidenceTest, TheCalmDoublesWithEachExcuse) {
  MakeSuspect();
  absl::Duration calm = CrashEvidence::kCalm;
  for (int trial = 0; trial < 4; ++trial) {
    CrashOf(2, kPrompt, 0, Suspicion::kAlone);
    CrashOf(5, kOther + 1 + trial, 0);  // at the same time
    evidence_.Conclude();
    calm *= 2;
    const absl::Duration since = clock_.Monotonic();
    clock_.Advance(calm - absl::Milliseconds(1));
    EXPECT_GT(evidence_.CalmIn(kPrompt, since), absl::ZeroDuration());
    clock_.Advance(absl::Milliseconds(1));
    EXPECT_EQ(evidence_.CalmIn(kPrompt, since), absl::ZeroDuration());
  }
  EXPECT_EQ(convictions_[kPrompt], 0);
}

TEST_F(CrashEvidenceTest, ATrialWaitsForCalmAMinuteAtMost) {
  MakeSuspect();
  const absl::Duration since = clock_.Monotonic();
  // These deaths do not excuse a crash, because streams of the same prompt ran there.
  for (int second = 0; second < 59; ++second) {
    CrashOf(5, kPrompt, 0);
    EXPECT_GT(evidence_.CalmIn(kPrompt, since), absl::ZeroDuration());
    clock_.Advance(absl::Seconds(1));
  }
  CrashOf(5, kPrompt, 0);
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(evidence_.CalmIn(kPrompt, since), absl::ZeroDuration());
}

TEST_F(CrashEvidenceTest, ATrialDoesNotWaitForCalmWhereADeathExcusesItBeforehand) {
  for (const absl::Duration ago : {absl::Seconds(1), absl::Seconds(29), absl::Seconds(31)}) {
    SCOPED_TRACE(ago);
    const uint64_t prompt = kPrompt + 100 + static_cast<uint64_t>(absl::ToInt64Seconds(ago));
    CrashOf(5, kOther, 0);
    clock_.Advance(ago);
    CrashOf(0, prompt, 0);
    CrashOf(1, prompt, 0);
    const absl::Duration since = clock_.Monotonic();
    const bool excused = ago < absl::Seconds(30);
    EXPECT_EQ(evidence_.CalmIn(prompt, since) == absl::ZeroDuration(), excused);
    if (excused) {
      CrashOf(2, prompt, 0, Suspicion::kAlone);
      clock_.Advance(CrashEvidence::kAfter);
      evidence_.Conclude();
      EXPECT_EQ(convictions_[prompt], 0);
      // This death cannot excuse a second crash.
      CrashOf(3, prompt, 0);
      EXPECT_GT(evidence_.CalmIn(prompt, clock_.Monotonic()), absl::ZeroDuration());
    }
    clock_.Advance(absl::Minutes(2));
  }
}

TEST_F(CrashEvidenceTest, ABrokenConnectionDoesNotStandInForCalm) {
  CrashOf(5, kOther, 0);
  clock_.Advance(absl::Seconds(5));
  CrashOf(0, kPrompt, 0);
  CrashOf(1, kPrompt, 0);
  EXPECT_EQ(evidence_.CalmIn(kPrompt, clock_.Monotonic()), absl::ZeroDuration());
  // It is not known yet whether the process lives.
  CrashEvidence open(
      &clock_, [](const WorkerSighting&) { return Fate::kOpen; }, [](uint64_t) {});
  const auto crash = [&](int worker, uint64_t prompt) {
    auto attempt = open.Begin({.worker = Link(worker), .prompt = prompt});
    open.OnCrash(&attempt, Sight(worker));
  };
  crash(5, kOther);
  crash(0, kPrompt);
  crash(1, kPrompt);
  EXPECT_GT(open.CalmIn(kPrompt, clock_.Monotonic()), absl::ZeroDuration());
}

TEST_F(CrashEvidenceTest, APromptThatCrashesEveryNinthTokenIsFound) {
  int64_t place = 0;
  int crashes = 0;
  while (convictions_[kPrompt] == 0) {
    ASSERT_LT(crashes, 12);
    const Suspicion under = evidence_.Of(kPrompt, place);
    auto attempt = Begin(0, kPrompt, place, under);
    attempt.OnTokens(9);
    place += 9;
    Crash(0, {&attempt});
    ++crashes;
    clock_.Advance(absl::Seconds(10));
    evidence_.Conclude();
  }
  EXPECT_EQ(crashes, 10);
}

struct StormStream {
  CrashEvidence::Attempt attempt;
  int worker = -1;
  int64_t place = 0;
  absl::Duration began, since;
  bool waits = false, alone = false;
};

// The model is slow: a stream needs many seconds for 8 tokens. So every kill hits streams at the
// position where they began. Whatever the times between the kills are, no prompt is convicted.
TEST_F(CrashEvidenceTest, AStormOfKillsConvictsNoPrompt) {
  constexpr int kWorkers = 3;
  constexpr int kStreams = 12;
  const absl::Duration token = absl::Milliseconds(500);
  for (const absl::Duration period :
       {absl::Milliseconds(500), absl::Seconds(1), absl::Milliseconds(2500), absl::Seconds(4)}) {
    std::minstd_rand random(static_cast<unsigned>(absl::ToInt64Milliseconds(period)));
    std::vector<StormStream> streams(kStreams);
    const absl::Duration start = clock_.Monotonic();
    const absl::Duration end = start + absl::Seconds(30);
    absl::Duration next_kill = start + period;
    for (; clock_.Monotonic() < end; clock_.Advance(absl::Milliseconds(250))) {
      const absl::Duration now = clock_.Monotonic();
      for (int i = 0; i < kStreams; ++i) {
        StormStream& stream = streams[i];
        const uint64_t prompt = 1000 + static_cast<uint64_t>(i);
        if (stream.worker >= 0) {
          if (now - stream.began >= token) {
            stream.attempt.OnTokens(1);
            ++stream.place;
            stream.began = now;
            if (evidence_.Of(prompt, stream.place) != Suspicion::kAlone) stream.alone = false;
          }
          continue;
        }
        const Suspicion suspicion = evidence_.Of(prompt, stream.place);
        const bool trial = suspicion == Suspicion::kAlone;
        if (trial && !std::exchange(stream.waits, true)) stream.since = now;
        if (!trial) stream.waits = false;
        const bool taken = std::any_of(streams.begin(), streams.end(),
                                       [](const StormStream& one) { return one.alone; });
        if (trial && (taken || evidence_.CalmIn(prompt, stream.since) > absl::ZeroDuration())) {
          continue;
        }
        stream.worker = static_cast<int>(random() % kWorkers);
        stream.began = now;
        stream.alone = trial;
        stream.attempt = Begin(stream.worker, prompt, stream.place, suspicion);
      }
      if (now < next_kill) continue;
      next_kill += period;
      const int killed = static_cast<int>(random() % kWorkers);
      std::vector<CrashEvidence::Attempt*> hit;
      for (StormStream& stream : streams) {
        if (stream.worker != killed) continue;
        hit.push_back(&stream.attempt);
        stream.worker = -1;
        stream.alone = false;
      }
      Crash(killed, hit);
    }
    clock_.Advance(absl::Minutes(1));
    evidence_.Conclude();
    for (int i = 0; i < kStreams; ++i) {
      EXPECT_EQ(convictions_[1000 + static_cast<uint64_t>(i)], 0) << period << ", stream " << i;
    }
    streams.clear();
    clock_.Advance(absl::Minutes(11));
  }
}

}  // namespace
}  // namespace tidepool::service
