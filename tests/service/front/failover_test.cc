// What guards failover, each by itself.
#include "service/front/failover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/front/attempt_record.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/manual_executor.h"

namespace tidepool::service {
namespace {

using Verdict = AttemptRecord::Verdict;
using Kind = Resubmissions::Kind;

// What follows from a failure more, of a worker that nothing is heard of any more if it crashed.
Verdict AfterFailure(EndedBy by, AttemptRecord* record) {
  record->OnFailure(by, {.process_id = 1});
  return record->Review([](const WorkerSighting&) { return AttemptRecord::Fate::kGone; });
}

TEST(AttemptRecordTest, TheSecondCrashIsThePrompts) {
  AttemptRecord record;
  EXPECT_FALSE(record.suspect());
  EXPECT_EQ(AfterFailure(EndedBy::kCrash, &record), Verdict::kTryAgain);
  EXPECT_TRUE(record.suspect());
  EXPECT_EQ(AfterFailure(EndedBy::kCrash, &record), Verdict::kPoisoned);
}

TEST(AttemptRecordTest, ThreeFailuresAreEnoughWhoeverIsToBlame) {
  AttemptRecord record;
  EXPECT_EQ(AfterFailure(EndedBy::kSilent, &record), Verdict::kTryAgain);
  EXPECT_EQ(AfterFailure(EndedBy::kCrash, &record), Verdict::kTryAgain);
  EXPECT_EQ(AfterFailure(EndedBy::kWorker, &record), Verdict::kGiveUp);
}

TEST(AttemptRecordTest, FailuresThatAreNoCrashesAreForgottenWithProgress) {
  AttemptRecord record;
  for (int worker = 0; worker < 100; ++worker) {
    record.OnTokens(AttemptRecord::kProvenTokens);
    EXPECT_EQ(AfterFailure(EndedBy::kSilent, &record), Verdict::kTryAgain) << worker;
    EXPECT_EQ(record.failures(), 1);
  }
  record.OnTokens(AttemptRecord::kProvenTokens - 1);
  EXPECT_EQ(AfterFailure(EndedBy::kSilent, &record), Verdict::kTryAgain);
  record.OnTokens(AttemptRecord::kProvenTokens - 1);
  EXPECT_EQ(AfterFailure(EndedBy::kSilent, &record), Verdict::kGiveUp);
}

TEST(AttemptRecordTest, TwoCrashesAtOnePlaceOfTheAnswerAreThePrompts) {
  for (const int64_t place : {1, 7, 20, 3000}) {
    for (const int64_t lost : {int64_t{0}, AttemptRecord::kProvenTokens - 1}) {
      AttemptRecord record;
      record.OnTokens(place);
      EXPECT_EQ(AfterFailure(EndedBy::kCrash, &record), Verdict::kTryAgain);
      EXPECT_TRUE(record.suspect());
      record.OnTokens(lost);
      EXPECT_TRUE(record.suspect());
      EXPECT_EQ(AfterFailure(EndedBy::kCrash, &record), Verdict::kPoisoned) << place;
    }
  }
}

TEST(AttemptRecordTest, ThePlaceIsTheSameOverAFailureOfAnotherKind) {
  AttemptRecord record;
  record.OnTokens(20);
  EXPECT_EQ(AfterFailure(EndedBy::kCrash, &record), Verdict::kTryAgain);
  record.OnTokens(3);
  EXPECT_EQ(AfterFailure(EndedBy::kSilent, &record), Verdict::kTryAgain);
  record.OnTokens(4);
  EXPECT_EQ(AfterFailure(EndedBy::kCrash, &record), Verdict::kPoisoned);
}

TEST(AttemptRecordTest, NoRequestCrashesWorkersForEver) {
  AttemptRecord record;
  for (size_t crash = 1; crash < AttemptRecord::kMostCrashes; ++crash) {
    record.OnTokens(AttemptRecord::kProvenTokens);
    EXPECT_FALSE(record.suspect());
    EXPECT_EQ(AfterFailure(EndedBy::kCrash, &record), Verdict::kTryAgain) << crash;
    EXPECT_EQ(record.failures(), 1);
  }
  record.OnTokens(5000);
  EXPECT_EQ(AfterFailure(EndedBy::kCrash, &record), Verdict::kPoisoned);
  EXPECT_EQ(record.crashes(), AttemptRecord::kMostCrashes);
}

// Of a link that breaks every hour.
TEST(AttemptRecordTest, CrashesThatWereNoneDoNotAddUp) {
  AttemptRecord record;
  for (int cut = 0; cut < 100; ++cut) {
    record.OnTokens(AttemptRecord::kProvenTokens);
    record.OnFailure(EndedBy::kCrash, {.process_id = 1});
    const auto lives = [](const WorkerSighting&) { return AttemptRecord::Fate::kLives; };
    EXPECT_EQ(record.Review(lives), Verdict::kTryAgain) << cut;
  }
  EXPECT_EQ(record.crashes(), 0);
}

TEST(PoisonedPromptsTest, AreRefusedForTenMinutes) {
  fakes::ManualClock clock;
  PoisonedPrompts prompts(&clock);
  EXPECT_TRUE(prompts.Check(7).ok());
  prompts.Refuse(7);
  clock.Advance(absl::Minutes(4));
  prompts.Refuse(7);  // by an attempt that was under way: the time does not begin anew
  const absl::Status refused = prompts.Check(7);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(refused.message(),
            "workers crashed while they computed this prompt; it is refused for another 6m: change "
            "it, or tell whoever runs the workers");
  EXPECT_TRUE(prompts.Check(8).ok());
  clock.Advance(absl::Minutes(6));
  EXPECT_TRUE(prompts.Check(7).ok());
  EXPECT_EQ(prompts.refused_total(), 1);
}

TEST(PoisonedPromptsTest, AreNotKeptWithoutEnd) {
  fakes::ManualClock clock;
  PoisonedPrompts prompts(&clock);
  for (uint64_t digest = 0; digest <= PoisonedPrompts::kMost; ++digest) prompts.Refuse(digest);
  EXPECT_TRUE(prompts.Check(0).ok());
  EXPECT_FALSE(prompts.Check(1).ok());
}

TEST(PromptDigestTest, IsOfWhatIsComputedAndOfNothingElse) {
  v1::GenerateRequest request;
  request.set_text("one");
  const uint64_t digest = PromptDigest("m", request, {});
  v1::GenerateRequest other = request;
  other.set_request_id("another");
  other.mutable_sampling()->set_temperature(1);
  other.mutable_stopping()->set_max_tokens(3);
  EXPECT_EQ(PromptDigest("m", other, {}), digest);
  EXPECT_NE(PromptDigest("n", request, {}), digest);
  EXPECT_NE(PromptDigest("m", request, {1}), digest);
  other.set_text("two");
  EXPECT_NE(PromptDigest("m", other, {}), digest);
}

TEST(BackOffTest, DoublesUpToItsLastAndSpreads) {
  const BackOff back_off = {.first = absl::Milliseconds(100), .last = absl::Seconds(1)};
  std::minstd_rand random{1};
  for (int failures = 1; failures < 10; ++failures) {
    const absl::Duration middle =
        std::min(absl::Milliseconds(100) * (1 << (failures - 1)), absl::Seconds(1));
    absl::Duration least = absl::InfiniteDuration(), most;
    for (int i = 0; i < 1000; ++i) {
      const absl::Duration wait = back_off.Wait(failures, &random);
      least = std::min(least, wait);
      most = std::max(most, wait);
    }
    EXPECT_GE(least, middle * 0.5);
    EXPECT_LE(most, middle * 1.5);
    EXPECT_GT(most - least, middle * 0.9) << "no spread";
  }
}

class ResubmissionsTest : public testing::Test {
 protected:
  void Enter(Kind kind, int number, const std::string& model = "m") {
    tickets_.resize(std::max<size_t>(tickets_.size(), number + 1));
    tickets_[number] = line_.Enter(kind, model, [this, number] { went_.push_back(number); });
    loop_.RunAll();
  }
  void Leave(int number) {
    tickets_[number].Reset();
    loop_.RunAll();
  }

  int64_t running_ = 0;
  std::map<std::string, int64_t> serving_{{"m", 1}, {"n", 1}};  // workers, by model
  fakes::ManualClock clock_;
  ManualExecutor loop_{&clock_};
  Resubmissions line_{&loop_, [this] { return running_; },
                      [this](const std::string& model) { return serving_.at(model); }};
  std::vector<Resubmissions::Ticket> tickets_;
  std::vector<int> went_;
};

TEST_F(ResubmissionsTest, AFifthOfTheRunningStreamsInTheOrderOfAsking) {
  running_ = 25;
  for (int i = 0; i < 8; ++i) Enter(Kind::kUsual, i);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(line_.under_way(), 5);
  EXPECT_EQ(line_.waiting(), 3);
  Leave(6);  // gave up waiting
  Leave(2);
  Leave(0);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 3, 4, 5, 7}));
}

TEST_F(ResubmissionsTest, ThreeGoHoweverFewRun) {
  running_ = 4;
  for (int i = 0; i < 4; ++i) Enter(Kind::kUsual, i);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2}));
}

TEST_F(ResubmissionsTest, SuspectsGoLastAndOneAtATime) {
  running_ = 4;
  Enter(Kind::kUsual, 0);
  Enter(Kind::kUsual, 1);
  Enter(Kind::kUsual, 2);
  Enter(Kind::kSuspect, 3);
  Enter(Kind::kSuspect, 4);
  Enter(Kind::kUsual, 5);
  Leave(0);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 5}));
  Leave(1);
  Leave(2);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 5, 3}));
  Leave(3);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 5, 3, 4}));
}

TEST_F(ResubmissionsTest, EveryWorkerTakesASuspectAtATime) {
  running_ = 100;
  serving_["m"] = 3;
  for (int i = 0; i < 5; ++i) Enter(Kind::kSuspect, i);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2}));
  tickets_[0].GoTo("a");
  tickets_[2].GoTo("c");
  EXPECT_EQ(line_.WithSuspects(), (std::vector<std::string>{"a", "c"}));
  serving_["m"] = 2;  // one of them has crashed
  Leave(0);
  EXPECT_EQ(line_.WithSuspects(), std::vector<std::string>{"c"});
  EXPECT_EQ(went_.size(), 3);
  Leave(2);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 3}));
  serving_["m"] = 0;
  Leave(1);
  EXPECT_EQ(went_.size(), 4);
  Leave(3);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 3, 4})) << "one waits for a worker";
}

TEST_F(ResubmissionsTest, WorkersOfOtherModelsAreNoPlacesForSuspects) {
  running_ = 100;
  serving_ = {{"m", 2}, {"n", 1}};
  for (int i : {0, 1, 2, 3}) Enter(Kind::kSuspect, i, "m");
  EXPECT_EQ(went_, (std::vector<int>{0, 1}));
  for (int i : {4, 5}) Enter(Kind::kSuspect, i, "n");
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 4})) << "the other model's worker is free";
  for (int i : {5, 4}) Leave(i);
  EXPECT_EQ(went_.size(), 3);
  EXPECT_EQ(line_.waiting(), 2);
  Leave(0);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 4, 2}));
}

TEST_F(ResubmissionsTest, SuspectsOfAllModelsGoInTheOrderOfAsking) {
  running_ = 4;  // three at a time
  serving_ = {{"m", 2}, {"n", 2}};
  for (int i : {0, 1, 2}) Enter(Kind::kUsual, i);
  Enter(Kind::kSuspect, 3, "n");
  Enter(Kind::kSuspect, 4, "m");
  Enter(Kind::kSuspect, 5, "n");
  for (int i : {0, 1, 2}) Leave(i);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

// Whatever comes and goes: no more than the limit is under way, and in the end everybody went.
TEST_F(ResubmissionsTest, NobodyIsForgottenUnderRandomLoad) {
  std::minstd_rand random{7};
  std::vector<int> under_way;
  size_t seen = 0;
  int next = 0;
  const auto leave_one = [&] {
    const size_t i = random() % under_way.size();
    const int number = under_way[i];
    under_way.erase(under_way.begin() + i);
    Leave(number);
  };
  const auto note_new = [&] {
    for (; seen < went_.size(); ++seen) under_way.push_back(went_[seen]);
  };
  for (int round = 0; round < 2000; ++round) {
    running_ = 1 + static_cast<int64_t>(random() % 60);
    if (random() % 2 == 0) {
      Enter(random() % 4 == 0 ? Kind::kSuspect : Kind::kUsual, next++, random() % 2 ? "m" : "n");
    } else if (!under_way.empty()) {
      leave_one();
    }
    note_new();
    ASSERT_LE(line_.under_way(), 12);
    ASSERT_EQ(line_.under_way(), under_way.size());
    ASSERT_TRUE(line_.waiting() == 0 || line_.under_way() > 0) << "all wait for nobody";
  }
  while (!under_way.empty()) leave_one(), note_new();
  EXPECT_EQ(line_.waiting(), 0);
  std::sort(went_.begin(), went_.end());
  ASSERT_EQ(went_.size(), next);
  for (int i = 0; i < next; ++i) EXPECT_EQ(went_[i], i);
}

}  // namespace
}  // namespace tidepool::service
