// How a front uses the states that workers report, and what it does if they stop.
#include "service/front/worker_set.h"

#include <gtest/gtest.h>

#include <vector>

#include "service/front/served_models.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

class WorkerSetTest : public FrontTest {};

// Over TLS, a stream of states ends at its maximum age. The next stream may need a handshake.
TEST_F(WorkerSetTest, AStreamStaysWithAWorkerWhoseWatchIsReopened) {
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Text());
  a->AnswerPrepare({1});
  PuppetLink* b = AddWorker("b");
  const auto pass = [&](absl::Duration time) {
    for (; time > absl::ZeroDuration(); time -= absl::Milliseconds(250)) {
      b->SayState();
      loop_.Advance(absl::Milliseconds(250));
    }
  };
  const auto health_of_a = [&] {
    return core_->workers()->Health(*core_->workers()->members()[0]);
  };
  pass(absl::Milliseconds(250));
  a->lose(absl::OkStatus());
  pass(absl::Milliseconds(2250));  // nine states are missing
  EXPECT_EQ(health_of_a(), WorkerHealth::kServing);
  a->runs[0]->Say({10});
  client.Take();
  EXPECT_FALSE(a->runs[0]->gone);
  a->SayState();
  pass(absl::Milliseconds(1250));
  EXPECT_EQ(health_of_a(), WorkerHealth::kSuspect) << "a state has come, and then none";

  // The front waits only for a limited time.
  a->SayState();
  a->lose(absl::OkStatus());
  pass(absl::Milliseconds(3250));
  EXPECT_EQ(health_of_a(), WorkerHealth::kSuspect);
  EXPECT_FALSE(a->runs[0]->gone);
  pass(absl::Seconds(1));
  EXPECT_TRUE(a->runs[0]->gone) << "it has fallen silent";
  pass(absl::Milliseconds(500));
  ASSERT_EQ(b->runs.size(), 1);
  b->runs[0]->Say({11}, v1::LENGTH);
  client.Take();
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10, 11}));

  a->SayState();
  a->lose(absl::OkStatus());
  a->lose(absl::UnavailableError("no connection"));
  EXPECT_EQ(health_of_a(), WorkerHealth::kDown) << "its next stream did not open";
}

TEST_F(WorkerSetTest, AnAliasSelectsItsModel) {
  PuppetLink* a = AddWorker("a");
  a->aliases = {"fast", "m-q4"};
  a->SayState();
  PuppetLink* b = AddWorker("b");
  b->digest = "e";  // the same model name, but other weights
  b->aliases = {"m-q8"};
  b->SayState();
  PuppetLink* c = AddWorker("c");
  c->aliases = {"second"};
  c->SayState();
  const WorkerSet& workers = *core_->workers();
  for (const char* name : {"", "m", "fast", "m-q4", "second"}) {
    EXPECT_EQ(FindModel(workers, name)->digest(), "d") << name;
  }
  EXPECT_EQ(FindModel(workers, "m-q8")->digest(), "e");
  EXPECT_EQ(FindModel(workers, "m", "e")->digest(), "e");
  EXPECT_EQ(FindModel(workers, "m", "gone")->digest(), "d");
  EXPECT_EQ(ServedModels(workers).size(), 2);
  EXPECT_EQ(FindModel(workers, "x").status().message(),
            "model 'x' is not served; served: fast, m-q4, second, m, m-q8");
}

// After a failed call, all requests use other workers until the worker reports its next state.
TEST_F(WorkerSetTest, ACallThatFailedSendsOthersElsewhere) {
  PuppetLink* a = AddWorker("a");
  PuppetLink* b = AddWorker("b");
  b->sequences = 50;
  b->SayState();
  std::vector<Client> clients(5);
  const auto ask = [&](Client* client, const char* text) {
    v1::GenerateRequest request;
    request.set_text(text);
    Begin(client, request);
  };
  ask(&clients[0], "first");
  ASSERT_EQ(a->prepares.size(), 1) << "it has less to do";
  a->AnswerPrepare({1});
  a->runs[0]->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
  ask(&clients[1], "second");
  EXPECT_EQ(a->prepares.size(), 1);
  ASSERT_EQ(b->prepares.size(), 1);
  // After the next state of worker a, the front sends it requests again, although the Run that
  // failed returned nothing.
  a->SayState();
  ask(&clients[2], "third");
  ASSERT_EQ(a->prepares.size(), 2);
  a->prepares.back().second(absl::UnavailableError("refused"));
  loop_.RunAll();
  ask(&clients[3], "fourth");
  EXPECT_EQ(a->prepares.size(), 2);
  EXPECT_EQ(b->prepares.size(), 2);
  // If the worker itself returns an error, it is not suspect.
  a->SayState();
  ask(&clients[4], "fifth");
  a->AnswerPrepare({1});
  a->runs.back()->events.on_end(absl::UnavailableError("expert 7 cannot be read"),
                                EndedBy::kWorker);
  EXPECT_EQ(core_->workers()->Health(*core_->workers()->members()[0]), WorkerHealth::kServing);
  for (Client& client : clients) {
    if (!client.status.has_value()) {
      client.generation->Cancel(absl::CancelledError("end of the test"));
    }
  }
}

TEST_F(WorkerSetTest, AStreamLeavesAWorkerWhoseEngineStalls) {
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Text());
  a->AnswerPrepare({1});
  a->runs[0]->Say({10});
  client.Take();
  a->SayState(worker::v1::STUCK);
  EXPECT_EQ(core_->workers()->Health(*core_->workers()->members()[0]), WorkerHealth::kSuspect);
  loop_.Advance(absl::Milliseconds(500));
  EXPECT_FALSE(a->runs[0]->gone) << "there is nowhere better to be";

  PuppetLink* b = AddWorker("b");
  b->sequences = 50;
  const auto pass = [&] {
    b->SayState();
    a->SayState(worker::v1::STUCK);
    loop_.Advance(absl::Milliseconds(250));
  };
  for (int i = 0; i < 3; ++i) pass();
  EXPECT_TRUE(a->runs[0]->gone);
  ASSERT_EQ(b->runs.size(), 1);
  b->runs[0]->Say({11}, v1::LENGTH);
  client.Take();
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10, 11}));
  EXPECT_TRUE(client.status->ok());

  // From now on, new streams go to the other worker, however busy it is, until the stuck worker
  // makes progress.
  Client next, later;
  Begin(&next, Text());
  ASSERT_EQ(b->prepares.size(), 1);
  b->AnswerPrepare({1});
  EXPECT_EQ(b->runs.size(), 2);
  a->SayState();
  Begin(&later, Text());
  EXPECT_EQ(b->prepares.size(), 1);
  EXPECT_EQ(a->prepares.size(), 2);
  for (Client* one : {&next, &later}) {
    one->generation->Cancel(absl::CancelledError("end of the test"));
  }
}

// A stuck worker counts like no worker: clients of this front should use another front.
TEST_F(WorkerSetTest, AFrontOfAStuckWorkerIsNotReady) {
  std::vector<bool> ready;
  core_->workers()->OnReadiness([&](bool now) { ready.push_back(now); });
  PuppetLink* a = AddWorker("a");
  a->SayState(worker::v1::STUCK);
  a->SayState();
  EXPECT_EQ(ready, (std::vector<bool>{true, false, true}));
}

TEST_F(WorkerSetTest, CountsThoseThatServeAModel) {
  PuppetLink* a = AddWorker("a");
  PuppetLink* other = AddWorker("other");
  AddWorker("b");
  other->digest = "another";
  other->SayState();
  EXPECT_EQ(CountServing(*core_->workers(), "d"), 2);
  EXPECT_EQ(CountServing(*core_->workers(), "another"), 1);
  EXPECT_EQ(CountServing(*core_->workers(), "unknown"), 0);
  a->SayState(worker::v1::STUCK);
  EXPECT_EQ(CountServing(*core_->workers(), "d"), 1);
  EXPECT_EQ(CountServing(*core_->workers(), "another"), 1);
}

}  // namespace
}  // namespace tidepool::service
