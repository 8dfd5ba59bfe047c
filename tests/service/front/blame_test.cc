// Workers seem to crash. These tests check what the front blames for the crash: a prompt, the
// connection of a worker, or neither. A front has three workers of a slow model (one token each 250
// ms). The test or a prompt kills the workers.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/service/front/simulated_workers.h"

namespace tidepool::service {
namespace {

class BlameTest : public SimulatedWorkersTest {
 protected:
  static constexpr absl::string_view kConvicted =
      "3 workers crashed while they computed this prompt, one of them while no other request "
      "could be the cause; the prompt is refused to its sender for 10m; the last: reset";

  // For 30 seconds, kills one worker in each period, if it is not dead already.
  void KillAtRandom(absl::Duration period, unsigned seed) {
    std::minstd_rand random(seed);
    for (absl::Duration stormed; stormed < absl::Seconds(30); stormed += period) {
      PuppetLink* worker = workers_[random() % workers_.size()];
      if (!dead_until_.contains(worker)) Kill(worker);
      Pass(period);
    }
  }

  // Each worker has two streams without credit. They have computed nothing since they moved to this
  // worker. Then prompt 50, that of the last client, is tried alone; it does not crash.
  void BeginTrialBesidePausedStreams() {
    for (int prompt = 1; prompt <= 6; ++prompt) deaf_.insert(Ask(prompt));
    Pass(absl::Seconds(80));
    for (PuppetLink* worker : workers_) Kill(worker);
    Pass(absl::Minutes(3));
    kills_ = 0;
    poison_ = {{50, 0}};
    Ask(50, "mallory");
    while (kills_ < 2) Tick();
    poison_.clear();
    Pass(absl::Seconds(1));
    while (Where(50) == nullptr) Tick();
  }
  // Tokens that the front lets this worker compute for other prompts.
  static int64_t CreditAt(const PuppetLink* worker, int except) {
    int64_t credit = 0;
    for (const auto& run : worker->runs) {
      const bool counts = !run->gone && run->start.prepared().token_ids(0) != except;
      credit += counts ? run->credit + run->position - run->start.output_token_ids_size() : 0;
    }
    return credit;
  }

  int prompts_ = 0;
};

TEST_F(BlameTest, APoisonedPromptKillsThreeWorkersAndIsRefusedToItsSender) {
  for (const int64_t place : {0, 3, 20}) {
    SCOPED_TRACE(place);
    kills_ = 0;
    const int prompt = static_cast<int>(100 + place);
    poison_ = {{prompt, place}};
    const Client* client = Ask(prompt, "mallory");
    Pass(absl::Seconds(30));
    EXPECT_EQ(kills_, 3);
    ASSERT_TRUE(client->status.has_value());
    EXPECT_EQ(*client->status, absl::InternalError(kConvicted));
    const Client* again = Ask(prompt, "mallory");
    ASSERT_TRUE(again->status.has_value());
    EXPECT_EQ(again->status->code(), absl::StatusCode::kInternal);
    EXPECT_TRUE(absl::StartsWith(again->status->message(),
                                 "workers crashed while they computed this prompt; it is refused "
                                 "to its sender for another 9m"))
        << *again->status;
    poison_.clear();  // the workers were repaired
    const Client* other = Ask(prompt, "alice");
    Pass(absl::Seconds(10));
    EXPECT_FALSE(other->status.has_value());
    EXPECT_GT(other->tokens.size(), 8);
    Pass(absl::Minutes(10));
    const Client* later = Ask(prompt, "mallory");
    Pass(absl::Seconds(10));
    EXPECT_FALSE(later->status.has_value());
    CancelAll();
    loop_.RunAll();
    clients_.clear();
  }
}

TEST_F(BlameTest, APromptThatCannotBePreparedKillsThreeWorkers) {
  unpreparable_ = 1;
  const Client* client = Ask(1);
  Pass(absl::Seconds(30));
  EXPECT_EQ(kills_, 3);
  ASSERT_TRUE(client->status.has_value());
  EXPECT_EQ(*client->status, absl::InternalError(kConvicted));
}

// The first worker dies before it has responded to Prepare, and the next one dies after its
// response.
TEST_F(BlameTest, APromptThatKillsDuringAndAfterPreparationKillsThreeWorkers) {
  unpreparable_ = 1;
  poison_ = {{1, 0}};
  const Client* client = Ask(1);
  while (kills_ < 1) Tick();
  unpreparable_ = 0;
  Pass(absl::Seconds(30));
  EXPECT_EQ(kills_, 3);
  ASSERT_TRUE(client->status.has_value());
  EXPECT_EQ(*client->status, absl::InternalError(kConvicted));
}

// Each request gets a response from another worker.
TEST_F(BlameTest, APromptThatKillsAfterItsPreparationKillsThreeWorkers) {
  for (const std::vector<std::string>& senders :
       std::vector<std::vector<std::string>>{{"mallory"}, {"mallory", "bob"}}) {
    kills_ = 0;
    dies_prepared_ = 60 + static_cast<int>(senders.size());
    size_t refused = 0;
    for (int round = 0; round < 5 && refused < senders.size(); ++round) {
      refused = 0;
      std::vector<Client*> clients;
      clients.reserve(senders.size());
      for (const std::string& sender : senders) clients.push_back(Ask(dies_prepared_, sender));
      Pass(absl::Seconds(20));
      for (Client* client : clients) {
        refused +=
            client->status.has_value() && client->status->code() == absl::StatusCode::kInternal;
      }
      CancelAll();
      loop_.RunAll();
    }
    EXPECT_EQ(refused, senders.size());
    EXPECT_EQ(kills_, 3);
    Pass(absl::Minutes(2));
  }
}

// The stream of the trial ends before the worker dies.
TEST_F(BlameTest, APromptThatKillsAfterItsStreamHasEndedKillsThreeWorkers) {
  dies_prepared_ = 50;
  int prompt = 0;
  for (int round = 0; round < 6 && kills_ < 6; ++round) {
    Client* client = Ask(50);
    const int before = kills_;
    while (dying_.empty() && !client->status.has_value()) Tick();
    if (client->generation != nullptr) client->generation->Cancel(absl::CancelledError("enough"));
    for (int other = 0; other < 6; ++other) Ask(100 + ++prompt);
    for (int tick = 0; tick < 4 && kills_ == before; ++tick) Tick();
    Pass(absl::Seconds(10));
    CancelAll();
    loop_.RunAll();
  }
  EXPECT_EQ(kills_, 3);
}

TEST_F(BlameTest, StreamsBesideAPromptThatKillsAfterItsPreparationContinue) {
  for (int prompt = 1; prompt <= 9; ++prompt) Ask(prompt);
  Pass(absl::Seconds(3));
  dies_prepared_ = 50;
  for (int round = 0; round < 3; ++round) {
    Client* client = Ask(50);
    Pass(absl::Seconds(20));
    if (client->generation != nullptr) client->generation->Cancel(absl::CancelledError("enough"));
    clients_.pop_back();
  }
  EXPECT_EQ(kills_, 3);
  ExpectAllGoOn();
}

// The worker dies before it has confirmed that it accepted the call.
TEST_F(BlameTest, APoisonedPromptKillsThreeWorkers) {
  cut_calls_end_ = EndedBy::kUnanswered;
  unpreparable_ = 1;
  const Client* client = Ask(1);
  Pass(absl::Seconds(30));
  EXPECT_EQ(kills_, 3);
  ASSERT_TRUE(client->status.has_value());
  EXPECT_EQ(*client->status, absl::InternalError(kConvicted));
}

TEST_F(BlameTest, CopiesOfAPoisonedPromptFromManySendersKillThreeWorkers) {
  for (const std::vector<std::string>& senders :
       std::vector<std::vector<std::string>>{{"mallory", "mallory", "mallory", "mallory"},
                                             {"mallory", "bob"},
                                             {"mallory", "bob", "carol", "dave"}}) {
    for (const int64_t place : {0, 5}) {
      SCOPED_TRACE(absl::StrCat(senders.size(), " from ", senders.back(), " at ", place));
      kills_ = 0;
      const int prompt = static_cast<int>(100 + 10 * clients_.size() + place + ++prompts_);
      poison_ = {{prompt, place}};
      std::vector<Client*> copies;
      copies.reserve(senders.size());
      for (const std::string& sender : senders) copies.push_back(Ask(prompt, sender));
      Pass(absl::Minutes(1));
      EXPECT_LE(kills_, 3);
      for (const Client* copy : copies) {
        ASSERT_TRUE(copy->status.has_value());
        EXPECT_EQ(copy->status->code(), absl::StatusCode::kInternal) << *copy->status;
      }
      for (const std::string& sender : senders) {
        const Client* again = Ask(prompt, sender);
        ASSERT_TRUE(again->status.has_value());
        EXPECT_EQ(again->status->code(), absl::StatusCode::kInternal);
      }
      EXPECT_LE(kills_, 3);
      Pass(absl::Minutes(2));  // so that no death excuses the next one
    }
  }
}

TEST_F(BlameTest, ALaterSenderOfAPoisonedPromptIsTriedOnce) {
  poison_ = {{50, 0}};
  Ask(50, "mallory");
  Pass(absl::Seconds(30));
  EXPECT_EQ(kills_, 3);
  const Client* bob = Ask(50, "bob");
  Pass(absl::Seconds(30));
  EXPECT_EQ(kills_, 4);
  ASSERT_TRUE(bob->status.has_value());
  EXPECT_EQ(bob->status->code(), absl::StatusCode::kInternal);
  poison_.clear();
  const Client* alice = Ask(50, "alice");
  Pass(absl::Seconds(10));
  EXPECT_FALSE(alice->status.has_value());
  EXPECT_GT(alice->tokens.size(), 8);
}

TEST_F(BlameTest, StreamsBesideAPoisonedPromptContinue) {
  for (int prompt = 1; prompt <= 9; ++prompt) Ask(prompt);
  Pass(absl::Seconds(3));
  poison_ = {{50, 2}};
  Client* client = Ask(50);
  Pass(absl::Minutes(1));
  EXPECT_EQ(kills_, 3);
  ASSERT_TRUE(client->status.has_value());
  EXPECT_EQ(client->status->code(), absl::StatusCode::kInternal);
  clients_.pop_back();
  ExpectAllGoOn();
}

TEST_F(BlameTest, AClientThatAsksAgainAndAgainKillsThreeWorkers) {
  poison_ = {{50, 0}};
  for (int asked = 0; asked < 100; ++asked) {
    Client* client = Ask(50);
    for (int tick = 0, before = kills_; tick < 4 && kills_ == before; ++tick) Tick();
    if (client->generation != nullptr) client->generation->Cancel(absl::CancelledError("enough"));
  }
  EXPECT_EQ(kills_, 3);
  ASSERT_TRUE(clients_.back().status.has_value());
  EXPECT_EQ(clients_.back().status->code(), absl::StatusCode::kInternal);
}

TEST_F(BlameTest, TwoKillsCloseTogetherLoseNothing) {
  for (const absl::Duration apart :
       {absl::ZeroDuration(), kTick, absl::Seconds(1), absl::Seconds(2)}) {
    SCOPED_TRACE(absl::FormatDuration(apart));
    for (int prompt = 1; prompt <= 10; ++prompt) Ask(prompt);
    Pass(absl::Seconds(1));
    Kill(workers_[0]);
    Pass(apart);
    Kill(workers_[1]);
    Pass(absl::Minutes(1));
    ExpectAllGoOn();
    CancelAll();
    loop_.RunAll();
    clients_.clear();
  }
}

TEST_F(BlameTest, AStormOfKillsLosesNothing) {
  for (const absl::Duration period :
       {absl::Milliseconds(500), absl::Seconds(1), absl::Milliseconds(2500), absl::Seconds(4)}) {
    const auto first = static_cast<unsigned>(absl::ToInt64Milliseconds(period));
    for (unsigned seed = first; seed < first + 5; ++seed) {
      SCOPED_TRACE(absl::StrCat(absl::FormatDuration(period), ", seed ", seed));
      for (int prompt = 1; prompt <= 12; ++prompt) Ask(prompt);
      Pass(absl::Seconds(1));
      KillAtRandom(period, seed);
      Pass(absl::Minutes(4));  // several prompts may wait for a trial, one after the other
      ExpectAllGoOn();
      CancelAll();
      loop_.RunAll();
      clients_.clear();
    }
  }
}

// Workers are killed before they can compute any prompt.
TEST_F(BlameTest, AStormWithoutAnyProgressLosesNothing) {
  for (int prompt = 1; prompt <= 12; ++prompt) Ask(prompt);
  Tick();
  for (int kill = 0; kill < 60; ++kill) {
    PuppetLink* worker = workers_[static_cast<size_t>(kill) % workers_.size()];
    if (!dead_until_.contains(worker)) Kill(worker);
    for (PuppetLink* one : workers_) {
      if (dead_until_.contains(one) && dead_until_[one] <= clock_.Monotonic()) Restart(one);
      if (!dead_until_.contains(one)) one->SayState(), AnswerPrepares(one);
    }
    loop_.Advance(absl::Milliseconds(500));
  }
  Pass(absl::Minutes(2));
  ExpectAllGoOn();
}

TEST_F(BlameTest, NothingElseIsSentToTheWorkerOfATrial) {
  poison_ = {{50, 4}};
  Ask(50);
  while (kills_ < 2) Tick();
  poison_.clear();  // so that the trial continues
  while (Where(50) == nullptr) Tick();
  PuppetLink* trial = Where(50);
  for (int prompt = 1; prompt <= 6; ++prompt) Ask(prompt);
  Tick();
  Tick();
  for (int prompt = 1; prompt <= 6; ++prompt) {
    EXPECT_NE(Where(prompt), nullptr);
    EXPECT_NE(Where(prompt), trial);
  }
}

// The clients of these streams read too slowly, so the streams had nothing to compute when the
// trial began.
TEST_F(BlameTest, StreamsThatAreReadAgainDuringATrialDoNotSpoilIt) {
  BeginTrialBesidePausedStreams();
  poison_ = {{50, 5}};
  const Client* poisoned = &clients_.back();
  deaf_.clear();
  Pass(absl::Minutes(1));
  EXPECT_EQ(kills_, 3);
  ASSERT_TRUE(poisoned->status.has_value());
  EXPECT_EQ(poisoned->status->code(), absl::StatusCode::kInternal);
  clients_.pop_back();
  ExpectAllGoOn();
}

TEST_F(BlameTest, StreamsThatAreReadAgainDuringATrialWaitForItsEnd) {
  BeginTrialBesidePausedStreams();
  PuppetLink* trial = Where(50);
  deaf_.clear();
  // Eight tokens end the trial.
  for (int tick = 0; tick < 6; ++tick) {
    Tick();
    EXPECT_EQ(CreditAt(trial, /*except=*/50), 0);
  }
  Pass(absl::Seconds(2));
  EXPECT_GT(CreditAt(trial, /*except=*/50), 0);
  ExpectAllGoOn();
}

TEST_F(BlameTest, StreamsThatAreReadAgainDuringALongTrialWaitForALimitedTime) {
  silent_ = 50;
  BeginTrialBesidePausedStreams();
  PuppetLink* trial = Where(50);
  deaf_.clear();
  Pass(absl::Seconds(29));
  EXPECT_EQ(Where(50), trial);
  EXPECT_EQ(CreditAt(trial, /*except=*/50), 0);
  Pass(absl::Seconds(2));
  EXPECT_EQ(Where(50), trial);
  EXPECT_GT(CreditAt(trial, /*except=*/50), 0);
  clients_.back().generation->Cancel(absl::CancelledError("enough"));
  clients_.pop_back();
  ExpectAllGoOn();
}

// A broken connection ends a run like a crash. But after it, the same process responds again.
TEST_F(BlameTest, TwoBrokenConnectionsLoseNothingAndThreeInARowEndTheStream) {
  const Client* client = Ask(1);
  Pass(absl::Seconds(1));
  for (int cut = 0; cut < 2; ++cut) {
    while (Where(1) == nullptr) Tick();
    Cut(Where(1));
    Tick();
  }
  Pass(absl::Seconds(6));
  EXPECT_FALSE(client->status.has_value()) << *client->status;
  for (int cut = 0; cut < 3; ++cut) {
    for (int tick = 0; tick < 40 && Where(1) == nullptr; ++tick) Tick();
    if (Where(1) != nullptr) Cut(Where(1));
    Tick();
  }
  Pass(absl::Seconds(2));
  ASSERT_TRUE(client->status.has_value());
  EXPECT_EQ(*client->status,
            absl::InternalError("3 attempts at this request failed; the last: reset"));
  const Client* again = Ask(1);
  Pass(absl::Seconds(5));
  EXPECT_FALSE(again->status.has_value()) << "the prompt is not refused";
  EXPECT_GT(again->tokens.size(), 8);
}

// For example, a proxy ends streams without messages: the run ends, but the stream of states
// continues.
TEST_F(BlameTest, AWorkerThatKeepsSayingItsStateHasNotCrashed) {
  const Client* client = Ask(1);
  Pass(absl::Seconds(1));
  for (int broken = 0; broken < 2; ++broken) {
    while (Where(1) == nullptr) Tick();
    const auto run = Where(1)->runs.back();
    run->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
    Pass(absl::Milliseconds(500));
  }
  Pass(absl::Seconds(6));
  EXPECT_FALSE(client->status.has_value()) << *client->status;
  ExpectAllGoOn();
}

// The state of the next process arrives before the end of the run is known.
TEST_F(BlameTest, ACrashIsOfTheProcessThatTheRunBeganAt) {
  const Client* client = Ask(1);
  Pass(absl::Seconds(1));
  for (int kill = 0; kill < 3; ++kill) {
    for (int tick = 0; tick < 40 && Where(1) == nullptr; ++tick) Tick();
    PuppetLink* worker = Where(1);
    ASSERT_NE(worker, nullptr);
    const auto run = worker->runs.back();
    worker->lose(absl::UnavailableError("reset"));
    Restart(worker);
    run->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
  }
  Pass(absl::Seconds(8));
  ASSERT_TRUE(client->status.has_value());
  EXPECT_EQ(*client->status, absl::InternalError(kConvicted));
}

// A message that a dead process sent before may arrive after the end of its run.
TEST_F(BlameTest, ALateStateIsNotASignOfLife) {
  const Client* client = Ask(1);
  Pass(absl::Seconds(1));
  for (int kill = 0; kill < 3; ++kill) {
    for (int tick = 0; tick < 40 && Where(1) == nullptr; ++tick) Tick();
    PuppetLink* worker = Where(1);
    ASSERT_NE(worker, nullptr);
    const auto run = worker->runs.back();
    run->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
    worker->SayState();
    Kill(worker);
  }
  Pass(absl::Seconds(8));
  ASSERT_TRUE(client->status.has_value());
  EXPECT_EQ(*client->status, absl::InternalError(kConvicted));
}

}  // namespace
}  // namespace tidepool::service
