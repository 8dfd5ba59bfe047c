// A front over three workers of a slow model, which run tick by tick, are killed and started again,
// and which prompts can kill.
#ifndef TIDEPOOL_TESTS_SERVICE_FRONT_SIMULATED_WORKERS_H_
#define TIDEPOOL_TESTS_SERVICE_FRONT_SIMULATED_WORKERS_H_

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {

inline constexpr absl::Duration kTick = absl::Milliseconds(250);

class SimulatedWorkersTest : public FrontTest {
 protected:
  SimulatedWorkersTest() {
    for (const char* name : {"a", "b", "c"}) {
      workers_.push_back(AddWorker(name));
      Restart(workers_.back());
    }
  }

  // The prompt is its number; other principals than the default one are named.
  Client* Ask(int prompt, const std::string& principal = "",
              absl::Duration timeout = absl::Minutes(60)) {
    Client* client = &clients_.emplace_back();
    GenerationInput input = {.principal = principal, .deadline = clock_.Monotonic() + timeout};
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
      done(WithEndedBy(absl::UnavailableError("reset"), cut_calls_end_));
    }
    const auto runs = worker->runs;
    for (const auto& run : runs) {
      if (!run->gone) run->events.on_end(absl::UnavailableError("reset"), cut_calls_end_);
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
      if (prompt == dies_prepared_) dying_.insert(worker);
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
      // It died of what it had prepared in the tick before.
      if (dying_.erase(worker) > 0 || !AnswerPrepares(worker)) {
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
        const bool says = run->start.prepared().token_ids(0) != silent_;
        if (run->credit > 0 && says) --run->credit, run->Say({7});
      }
    }
    for (Client& client : clients_) {
      if (client.writing && !deaf_.contains(&client)) client.Take();
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
  ~SimulatedWorkersTest() override { CancelAll(); }

  std::vector<PuppetLink*> workers_;
  std::map<PuppetLink*, absl::Duration> dead_until_;
  std::map<int, int64_t> poison_;  // prompts, and the token at which each kills its worker
  std::deque<Client> clients_;
  std::set<const Client*> deaf_;  // they take no messages
  int unpreparable_ = 0;          // the prompt that kills whoever prepares it
  int dies_prepared_ = 0;         // the prompt that kills whoever has prepared it
  std::set<PuppetLink*> dying_;
  int silent_ = 0;  // the prompt that gets no tokens
  uint64_t processes_ = 0;
  int kills_ = 0;
  EndedBy cut_calls_end_ = EndedBy::kCrash;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_FRONT_SIMULATED_WORKERS_H_
