// A front with three workers of a slow model. Each tick is one step of the workers. The test can
// kill workers and start them again, and prompts can kill them.
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

  // A prompt is represented by its number. `principal` is empty for the default principal.
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

  // Breaks every stream to the worker. The stream of its states breaks last.
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
  // Kills the worker's process. It starts again one second later.
  void Kill(PuppetLink* worker) {
    Cut(worker);
    ++kills_;
    dead_until_[worker] = clock_.Monotonic() + absl::Seconds(1);
  }

  bool IsPoison(const PuppetLink::Run_& run) const {
    const auto found = poison_.find(run.start.prepared().token_ids(0));
    return found != poison_.end() && run.position >= found->second;
  }

  // Returns false if one of the prompts kills the worker.
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

  // Runs one step of all workers. Each stream gets a token, or kills its worker if its prompt is
  // poison.
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
      // The worker dies because of a prompt that it has prepared in the last tick.
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

  // Returns the worker on which the prompt runs, or null.
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
  // for each prompt that kills its worker: the token at which it does so
  std::map<int, int64_t> poison_;
  std::deque<Client> clients_;
  std::set<const Client*> deaf_;  // clients that do not read
  int unpreparable_ = 0;          // the prompt that kills each worker that prepares it
  int dies_prepared_ = 0;         // the prompt that kills each worker that has prepared it
  std::set<PuppetLink*> dying_;
  int silent_ = 0;  // the prompt whose streams get no tokens
  uint64_t processes_ = 0;
  int kills_ = 0;
  EndedBy cut_calls_end_ = EndedBy::kCrash;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_TESTS_SERVICE_FRONT_SIMULATED_WORKERS_H_
