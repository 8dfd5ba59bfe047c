// Unit tests of the classes that control failover.
#include "service/front/failover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/front/retry_state.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/base/manual_executor.h"

namespace tidepool::service {
namespace {

using Kind = FailoverQueue::Kind;

RetryState AfterFailures(std::initializer_list<EndedBy> failures) {
  RetryState record;
  for (const EndedBy by : failures) record.OnFailure(by, {.process_id = 1});
  return record;
}

bool ExhaustedWhere(Fate fate, RetryState* record) {
  return record->Exhausted([fate](const WorkerSighting&) { return fate; });
}

TEST(RetryStateTest, ThreeFailuresExhaustIt) {
  RetryState two = AfterFailures({EndedBy::kSilent, EndedBy::kWorker});
  EXPECT_FALSE(ExhaustedWhere(Fate::kGone, &two));
  RetryState three = AfterFailures({EndedBy::kSilent, EndedBy::kWorker, EndedBy::kSilent});
  EXPECT_TRUE(ExhaustedWhere(Fate::kGone, &three));
}

TEST(RetryStateTest, WorkersThatDieDoNotExhaustIt) {
  RetryState record;
  for (int crash = 0; crash < 100; ++crash) {
    record.OnFailure(EndedBy::kCrash, {.process_id = 1});
    EXPECT_FALSE(ExhaustedWhere(crash % 2 == 0 ? Fate::kOpen : Fate::kGone, &record)) << crash;
  }
  EXPECT_EQ(record.setbacks(), 100);
}

TEST(RetryStateTest, ThreeBrokenConnectionsExhaustIt) {
  RetryState record = AfterFailures({EndedBy::kCrash, EndedBy::kCrash});
  EXPECT_FALSE(ExhaustedWhere(Fate::kLives, &record));
  record.OnFailure(EndedBy::kCrash, {.process_id = 1});
  EXPECT_FALSE(ExhaustedWhere(Fate::kOpen, &record));
  EXPECT_TRUE(ExhaustedWhere(Fate::kLives, &record));
}

TEST(RetryStateTest, EightTokensResetTheCount) {
  RetryState record;
  for (int worker = 0; worker < 100; ++worker) {
    record.OnTokens(RetryState::kProvenTokens);
    record.OnFailure(worker % 2 == 0 ? EndedBy::kSilent : EndedBy::kCrash, {.process_id = 1});
    EXPECT_FALSE(ExhaustedWhere(Fate::kLives, &record)) << worker;
    EXPECT_EQ(record.setbacks(), 1);
  }
  for (int more = 0; more < 2; ++more) {
    record.OnTokens(RetryState::kProvenTokens - 1);
    record.OnFailure(EndedBy::kSilent, {.process_id = 1});
  }
  EXPECT_TRUE(ExhaustedWhere(Fate::kLives, &record));
}

TEST(PoisonedPromptsTest, AreRefusedForTenMinutes) {
  fakes::ManualClock clock;
  PoisonedPrompts prompts(&clock);
  EXPECT_TRUE(prompts.Check(7).ok());
  prompts.Refuse(7);
  clock.Advance(absl::Minutes(4));
  prompts.Refuse(7);  // the expiry time does not change
  const absl::Status refused = prompts.Check(7);
  EXPECT_EQ(refused.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(refused.message(),
            "workers crashed while they computed this prompt; it is refused to its sender for "
            "another 6m: change the prompt, or report it to the operator of the workers");
  EXPECT_TRUE(prompts.Check(8).ok());
  clock.Advance(absl::Minutes(6));
  EXPECT_TRUE(prompts.Check(7).ok());
  EXPECT_EQ(prompts.refused_total(), 1);
}

TEST(PoisonedPromptsTest, AreNotKeptWithoutEnd) {
  fakes::ManualClock clock;
  PoisonedPrompts prompts(&clock);
  for (uint64_t digest = 0; digest <= PoisonedPrompts::kMax; ++digest) prompts.Refuse(digest);
  EXPECT_TRUE(prompts.Check(0).ok());
  EXPECT_FALSE(prompts.Check(1).ok());
}

TEST(PromptIdTest, DependsOnTheSenderAndTheComputedInput) {
  v1::GenerateRequest request;
  request.set_text("one");
  const uint64_t digest = PromptIdOf("p", "m", request, {}).sent;
  v1::GenerateRequest other = request;
  other.set_request_id("another");
  other.mutable_sampling()->set_temperature(1);
  other.mutable_stopping()->set_max_tokens(3);
  EXPECT_EQ(PromptIdOf("p", "m", other, {}).sent, digest);
  EXPECT_NE(PromptIdOf("p", "n", request, {}).sent, digest);
  EXPECT_NE(PromptIdOf("q", "m", request, {}).sent, digest);
  EXPECT_NE(PromptIdOf("", "m", request, {}).sent, digest);
  EXPECT_NE(PromptIdOf("p", "m", request, {1}).sent, digest);
  other.set_text("two");
  EXPECT_NE(PromptIdOf("p", "m", other, {}).sent, digest);
}

TEST(PromptIdTest, TheContentDoesNotDependOnTheSender) {
  v1::GenerateRequest request;
  request.set_text("one");
  const uint64_t content = PromptIdOf("p", "m", request, {}).content;
  EXPECT_EQ(PromptIdOf("q", "m", request, {}).content, content);
  EXPECT_NE(PromptIdOf("p", "n", request, {}).content, content);
  EXPECT_NE(PromptIdOf("p", "m", request, {1}).content, content);
  request.set_text("two");
  EXPECT_NE(PromptIdOf("p", "m", request, {}).content, content);
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

class FailoverQueueTest : public testing::Test {
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
  FailoverQueue line_{&loop_, [this] { return running_; },
                      [this](const std::string& model) { return serving_.at(model); }};
  std::vector<FailoverQueue::Ticket> tickets_;
  std::vector<int> went_;
};

TEST_F(FailoverQueueTest, AFifthOfTheRunningStreamsInTheOrderOfAsking) {
  running_ = 25;
  for (int i = 0; i < 8; ++i) Enter(Kind::kUsual, i);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(line_.in_flight(), 5);
  EXPECT_EQ(line_.waiting(), 3);
  Leave(6);  // stream 6 no longer waits
  Leave(2);
  Leave(0);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 3, 4, 5, 7}));
}

TEST_F(FailoverQueueTest, ThreeGoHoweverFewRun) {
  running_ = 4;
  for (int i = 0; i < 4; ++i) Enter(Kind::kUsual, i);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2}));
}

TEST_F(FailoverQueueTest, SuspectsGoLastAndOneAtATime) {
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

TEST_F(FailoverQueueTest, EveryWorkerTakesASuspectAtATime) {
  running_ = 100;
  serving_["m"] = 3;
  for (int i = 0; i < 5; ++i) Enter(Kind::kSuspect, i);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2}));
  tickets_[0].GoTo("a");
  tickets_[2].GoTo("c");
  EXPECT_EQ(line_.WithSuspects(), (std::vector<std::string>{"a", "c"}));
  serving_["m"] = 2;  // one worker of model n has crashed
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

TEST_F(FailoverQueueTest, OneOfAModelIsTriedByItselfAfterTheOthers) {
  running_ = 100;
  serving_["m"] = 3;
  Enter(Kind::kAlone, 0);
  Enter(Kind::kAlone, 1);
  Enter(Kind::kAlone, 2, "n");
  Enter(Kind::kSuspect, 3);
  EXPECT_EQ(went_, (std::vector<int>{0, 2, 3}));
  tickets_[0].GoTo("a");
  tickets_[3].GoTo("b");
  EXPECT_EQ(line_.WithTrials(), std::vector<std::string>{"a"});
  EXPECT_EQ(line_.WithSuspects(), (std::vector<std::string>{"a", "b"}));
  int told = 0;
  line_.AfterTrial([&] { ++told; });
  Leave(3);
  EXPECT_EQ(told, 0);
  tickets_[0].GoTo("a");
  loop_.RunAll();
  EXPECT_EQ(told, 0);
  tickets_[0].GoTo("c");
  loop_.RunAll();
  EXPECT_EQ(told, 1) << "it moved";
  told = 0;
  line_.AfterTrial([&] { ++told; });
  Leave(0);
  EXPECT_EQ(told, 1);
  EXPECT_EQ(went_, (std::vector<int>{0, 2, 3, 1}));
  Leave(1);
  EXPECT_EQ(told, 1);
}

TEST_F(FailoverQueueTest, TheOnlyWorkerTakesASuspectOrATrial) {
  running_ = 100;
  Enter(Kind::kSuspect, 0);
  Enter(Kind::kAlone, 1);
  EXPECT_EQ(went_, std::vector<int>{0});
  Leave(0);
  Enter(Kind::kSuspect, 2);
  EXPECT_EQ(went_, (std::vector<int>{0, 1}));
  Leave(1);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2}));
}

TEST_F(FailoverQueueTest, WorkersOfOtherModelsAreNoPlacesForSuspects) {
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

TEST_F(FailoverQueueTest, SuspectsOfAllModelsGoInTheOrderOfAsking) {
  running_ = 4;  // three may restart at the same time
  serving_ = {{"m", 2}, {"n", 2}};
  for (int i : {0, 1, 2}) Enter(Kind::kUsual, i);
  Enter(Kind::kSuspect, 3, "n");
  Enter(Kind::kSuspect, 4, "m");
  Enter(Kind::kSuspect, 5, "n");
  for (int i : {0, 1, 2}) Leave(i);
  EXPECT_EQ(went_, (std::vector<int>{0, 1, 2, 3, 4, 5}));
}

// Under random load, the number of restarting streams never exceeds the limit. In the end, every
// stream has restarted.
TEST_F(FailoverQueueTest, NoStreamIsForgottenUnderRandomLoad) {
  std::minstd_rand random{7};
  std::vector<int> in_flight;
  size_t seen = 0;
  int next = 0;
  const auto leave_one = [&] {
    const size_t i = random() % in_flight.size();
    const int number = in_flight[i];
    in_flight.erase(in_flight.begin() + i);
    Leave(number);
  };
  const auto note_new = [&] {
    for (; seen < went_.size(); ++seen) in_flight.push_back(went_[seen]);
  };
  for (int round = 0; round < 2000; ++round) {
    running_ = 1 + static_cast<int64_t>(random() % 60);
    if (random() % 2 == 0) {
      Enter(random() % 4 == 0 ? Kind::kSuspect : Kind::kUsual, next++, random() % 2 ? "m" : "n");
    } else if (!in_flight.empty()) {
      leave_one();
    }
    note_new();
    ASSERT_LE(line_.in_flight(), 12);
    ASSERT_EQ(line_.in_flight(), in_flight.size());
    ASSERT_TRUE(line_.waiting() == 0 || line_.in_flight() > 0) << "all wait for nobody";
  }
  while (!in_flight.empty()) leave_one(), note_new();
  EXPECT_EQ(line_.waiting(), 0);
  std::sort(went_.begin(), went_.end());
  ASSERT_EQ(went_.size(), next);
  for (int i = 0; i < next; ++i) EXPECT_EQ(went_[i], i);
}

}  // namespace
}  // namespace tidepool::service
