// Generations whose worker drains. They continue on another worker, and this does not count as a
// failure.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/base/retry_after.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

class MigrateTest : public FrontTest {
 protected:
  // Begins a stream, which runs on `worker`. There is no other worker yet.
  std::shared_ptr<PuppetLink::Run_> BeginAt(PuppetLink* worker, Client* client) {
    Begin(client, Text());
    worker->AnswerPrepare({1, 2, 3});
    return worker->runs.back();
  }

  void EndWith(Client* client, PuppetLink::Run_* run, const std::vector<int32_t>& expected) {
    run->Say({expected.back()}, v1::LENGTH);
    while (client->writing) client->Take();
    ASSERT_TRUE(client->status.has_value());
    EXPECT_TRUE(client->status->ok()) << *client->status;
    EXPECT_EQ(client->tokens, expected);
  }
};

TEST_F(MigrateTest, ContinuesAtOnceAtAnotherWorker) {
  PuppetLink* a = AddWorker("a");
  Client client;
  const auto left = BeginAt(a, &client);
  PuppetLink* b = AddWorker("b");
  left->Say({10, 11});
  left->SayMigrate();
  // The stream moves at once, and does not wait in the FailoverQueue.
  EXPECT_TRUE(left->gone);
  ASSERT_EQ(b->runs.size(), 1);
  EXPECT_EQ(b->runs[0]->start.output_token_ids_size(), 2);
  EXPECT_EQ(b->runs[0]->start.attempt(), 1);
  // Later messages of the old worker are ignored.
  left->Say({12});
  left->events.on_end(absl::CancelledError("cancelled"), EndedBy::kWorker);
  EndWith(&client, b->runs[0].get(), {10, 11, 12});
}

TEST_F(MigrateTest, MoreOftenThanAStreamMayFail) {
  std::vector<PuppetLink*> workers;
  Client client;
  workers.push_back(AddWorker("w0"));
  auto run = BeginAt(workers[0], &client);
  std::vector<int32_t> expected;
  for (int move = 1; move <= 6; ++move) {
    workers.push_back(AddWorker("w" + std::to_string(move)));
    run->Say({move});  // too few tokens to prove that the prompt is harmless
    expected.push_back(move);
    run->SayMigrate();
    ASSERT_EQ(workers[move]->runs.size(), 1) << move;
    run = workers[move]->runs[0];
  }
  expected.push_back(7);
  EndWith(&client, run.get(), expected);
}

TEST_F(MigrateTest, StaysIfNoOtherWorkerServes) {
  PuppetLink* a = AddWorker("a");
  Client client;
  const auto run = BeginAt(a, &client);
  run->Say({10});
  a->SayState(worker::v1::DRAINING);
  run->SayMigrate();
  EXPECT_FALSE(run->gone);
  run->Say({11});
  EndWith(&client, run.get(), {10, 11, 12});
}

TEST_F(MigrateTest, MovesWhenAnotherComes) {
  PuppetLink* a = AddWorker("a");
  Client client;
  const auto run = BeginAt(a, &client);
  run->Say({10});
  run->SayMigrate();
  run->Say({11});
  PuppetLink* b = AddWorker("b");
  EXPECT_TRUE(run->gone);
  ASSERT_EQ(b->runs.size(), 1);
  EXPECT_EQ(b->runs[0]->start.output_token_ids_size(), 2);
  EndWith(&client, b->runs[0].get(), {10, 11, 12});
}

// A newer worker reports a state that this front does not know.
TEST_F(MigrateTest, AnUnknownStateGetsNothingNew) {
  PuppetLink* a = AddWorker("a");
  a->SayState(static_cast<worker::v1::WorkerState>(99));
  Client client;
  Begin(&client, Text());
  EXPECT_TRUE(a->prepares.empty());
  // A worker that reports no state counts as serving.
  a->SayState(worker::v1::WORKER_STATE_UNSPECIFIED);
  EXPECT_EQ(a->prepares.size(), 1);
}

// If refusals counted, three of them would use up the three attempts.
TEST_F(MigrateTest, ARefusalByADrainingWorkerIsNotAFailure) {
  std::vector<PuppetLink*> workers;
  for (const char* name : {"a", "b", "c"}) workers.push_back(AddWorker(name));
  Client client;
  Begin(&client, Text());
  for (PuppetLink* worker : workers) {
    if (!worker->prepares.empty()) worker->AnswerPrepare({1, 2, 3});
  }
  for (int refusal = 0; refusal < 3; ++refusal) {
    for (PuppetLink* worker : workers) {
      if (worker->runs.empty() || worker->runs.back()->gone) continue;
      worker->runs.back()->events.on_end(absl::UnavailableError("draining"), EndedBy::kDrain);
      break;
    }
  }
  for (PuppetLink* worker : workers) EXPECT_EQ(worker->runs.size(), 1);
  EXPECT_FALSE(client.status.has_value());
  // A new process responds at the address of workers[1].
  workers[1]->SayState();
  ASSERT_EQ(workers[1]->runs.size(), 2);
  EndWith(&client, workers[1]->runs[1].get(), {10});
}

TEST_F(MigrateTest, AWorkerWhoseDrainTimeIsOverHandsOverToTheNextThatComes) {
  PuppetLink* a = AddWorker("a");
  Client client;
  const auto run = BeginAt(a, &client);
  run->Say({10});
  run->SayMigrate();
  run->events.on_end(absl::UnavailableError("shutting down"), EndedBy::kDrain);
  EXPECT_FALSE(client.status.has_value());
  loop_.Advance(absl::Seconds(20));
  PuppetLink* b = AddWorker("b");
  ASSERT_EQ(b->runs.size(), 1);
  EndWith(&client, b->runs[0].get(), {10, 11});
}

TEST_F(MigrateTest, EndsIfNoWorkerComesForThirtySeconds) {
  PuppetLink* a = AddWorker("a");
  Client client;
  const auto run = BeginAt(a, &client);
  run->events.on_end(absl::UnavailableError("shutting down"), EndedBy::kDrain);
  loop_.Advance(absl::Seconds(31));
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(client.status->code(), absl::StatusCode::kUnavailable);
}

// The stream was accepted before. So full queues neither end it nor use up its attempts.
TEST_F(MigrateTest, AStreamThatHasBegunWaitsForRoom) {
  PuppetLink* a = AddWorker("a");
  Client client;
  const auto run = BeginAt(a, &client);
  run->Say({10});
  PuppetLink* b = AddWorker("b");
  run->SayMigrate();
  const absl::Status full =
      base::WithRetryAfter(absl::ResourceExhaustedError("the queue is full"), absl::Seconds(1));
  for (int refusal = 1; refusal <= 6; ++refusal) {
    ASSERT_EQ(b->runs.size(), refusal);
    b->runs.back()->events.on_end(full, EndedBy::kWorker);
    ASSERT_FALSE(client.status.has_value());
    b->SayState();
    loop_.Advance(absl::Seconds(2));
    b->SayState();
  }
  EndWith(&client, b->runs.back().get(), {10, 11});
}

}  // namespace
}  // namespace tidepool::service
