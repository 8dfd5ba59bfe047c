// Whether a prompt, its worker's connection or neither is to blame when workers seem to crash: a front
// over three workers of a slow model (a token each 250 ms) that are killed, or that a prompt kills.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(250);

class BlameTest : public FrontTest {
 protected:
  BlameTest() {
    for (const char* name : {"a", "b", "c"}) {
      workers_.push_back(AddWorker(name));
      Restart(workers_.back());
    }
  }

  // The prompt is its number; other principals than the default one are named.
  Client* Ask(int prompt, const std::string& principal = "") {
    Client* client = &clients_.emplace_back();
    GenerationInput input = {.principal = principal,
                             .deadline = clock_.Monotonic() + absl::Minutes(60)};
    input.request.set_text(absl::StrCat(prompt));
    client->generation = core_->Generate(std::move(input), client);
    loop_.RunAll();
    return client;
  }

  void Restart(PuppetLink* worker) {
    worker->process_id = ++processes_;
    worker->SayState();
    dead_until_.erase(worker);
  }

  // Every stream to the worker breaks, the one of its states last.
  void Cut(PuppetLink* worker) {
    const auto prepares = std::move(worker->prepares);
    worker->prepares.clear();
    for (const auto& [request, done] : prepares) {
      done(EndedByCrash(absl::UnavailableError("reset")));
    }
    const auto runs = worker->runs;
    for (const auto& run : runs) {
      if (!run->gone) run->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
    }
    worker->lose(absl::UnavailableError("reset"));
  }
  // Its process dies and is started again a second later.
  void Kill(PuppetLink* worker) {
    Cut(worker);
    ++kills_;
    dead_until_[worker] = clock_.Monotonic() + absl::Seconds(1);
  }

  bool IsPoison(const PuppetLink::Run_& run) const {
    const auto found = poison_.find(run.start.prepared().token_ids(0));
    return found != poison_.end() && run.position >= found->second;
  }

  // False: one of them kills the worker.
  bool AnswerPrepares(PuppetLink* worker) {
    while (!worker->prepares.empty()) {
      int prompt = 0;
      EXPECT_TRUE(absl::SimpleAtoi(worker->prepares.back().first.request().text(), &prompt));
      if (prompt == unpreparable_) return false;
      const auto answered = worker->prepares.back();
      worker->AnswerPrepare({prompt});
      std::erase_if(worker->prepares, [&](const auto& one) {
        return one.first.request().request_id() == answered.first.request().request_id();
      });
    }
    return true;
  }

  // One step of all workers: a token for each stream, and a crash where a stream is poison.
  void Tick() {
    for (PuppetLink* worker : workers_) {
      const auto dead = dead_until_.find(worker);
      if (dead == dead_until_.end()) {
        worker->SayState();
      } else if (dead->second <= clock_.Monotonic()) {
        Restart(worker);
      }
    }
    loop_.Advance(kTick);
    for (PuppetLink* worker : workers_) {
      if (dead_until_.contains(worker)) continue;
      if (!AnswerPrepares(worker)) {
        Kill(worker);
        continue;
      }
      loop_.RunAll();
      const auto runs = worker->runs;
      for (const auto& run : runs) {
        if (run->gone) continue;
        if (IsPoison(*run)) {
          Kill(worker);
          break;
        }
        if (run->credit > 0) --run->credit, run->Say({7});
      }
    }
    for (Client& client : clients_) {
      if (client.writing) client.Take();
    }
    loop_.RunAll();
  }
  void Pass(absl::Duration time) {
    for (absl::Duration passed; passed < time; passed += kTick) Tick();
  }

  // Where the prompt runs; null: nowhere.
  PuppetLink* Where(int prompt) const {
    for (PuppetLink* worker : workers_) {
      for (const auto& run : worker->runs) {
        if (!run->gone && run->start.prepared().token_ids(0) == prompt) return worker;
      }
    }
    return nullptr;
  }

  void ExpectAllGoOn() {
    std::vector<size_t> before;
    for (const Client& client : clients_) before.push_back(client.tokens.size());
    Pass(absl::Seconds(5));
    for (size_t i = 0; i < clients_.size(); ++i) {
      EXPECT_FALSE(clients_[i].status.has_value()) << i << ": " << *clients_[i].status;
      EXPECT_GT(clients_[i].tokens.size(), before[i]) << i;
    }
  }
  void CancelAll() {
    for (Client& client : clients_) {
      if (client.generation != nullptr) client.generation->Cancel(absl::CancelledError("the end"));
    }
  }
  ~BlameTest() override { CancelAll(); }

  static constexpr absl::string_view kConvicted =
      "3 workers crashed while they computed this prompt, one of them while nothing else ran that "
      "could be the cause; it is refused to its sender for 10m; the last: reset";

  std::vector<PuppetLink*> workers_;
  std::map<PuppetLink*, absl::Duration> dead_until_;
  std::map<int, int64_t> poison_;  // prompts, and the token at which each kills its worker
  std::deque<Client> clients_;
  int unpreparable_ = 0;  // the prompt that kills whoever prepares it
  uint64_t processes_ = 0;
  int kills_ = 0;
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
    poison_.clear();  // the workers were mended
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

TEST_F(BlameTest, StreamsBesideAPoisonedPromptGoOn) {
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
  for (const absl::Duration period : {absl::Milliseconds(500), absl::Seconds(1),
                                      absl::Milliseconds(2500), absl::Seconds(4)}) {
    SCOPED_TRACE(absl::FormatDuration(period));
    std::minstd_rand random(static_cast<unsigned>(absl::ToInt64Milliseconds(period)));
    for (int prompt = 1; prompt <= 12; ++prompt) Ask(prompt);
    Pass(absl::Seconds(1));
    for (absl::Duration stormed; stormed < absl::Seconds(30); stormed += period) {
      PuppetLink* worker = workers_[random() % workers_.size()];
      if (!dead_until_.contains(worker)) Kill(worker);
      Pass(period);
    }
    Pass(absl::Minutes(2));
    ExpectAllGoOn();
    CancelAll();
    loop_.RunAll();
    clients_.clear();
  }
}

// Their prompts take longer than the workers live.
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
  poison_.clear();  // so that the trial lasts
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

// A broken connection ends a run as a crash does; but then the same process answers again.
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

// As with a proxy that ends streams that are silent for long, and no others.
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

// What a dead process has sent before can come after the end of its run.
TEST_F(BlameTest, AStateThatCameLateIsNoSignOfLife) {
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
