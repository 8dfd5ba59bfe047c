// Requests with fields that workers of older releases would ignore.
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/match.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

class OlderWorkersTest : public FrontTest {
 protected:
  // A worker of the first release.
  PuppetLink* AddOld(const std::string& name) {
    PuppetLink* worker = AddWorker(name, /*announces=*/0);
    worker->understands = 0;
    return worker;
  }
  static v1::GenerateRequest Constrained() {
    v1::GenerateRequest request = Text();
    request.set_regex("a+");
    return request;
  }
  void Crash(PuppetLink* worker) {
    worker->runs.back()->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
    worker->lose(absl::UnavailableError("reset"));
  }
  void TakeAll(Client* client) {
    for (loop_.RunAll(); client->writing; loop_.RunAll()) client->Take();
  }
};

TEST_F(OlderWorkersTest, AConstrainedResponseMovesOnlyToAWorkerThatKnowsConstraints) {
  PuppetLink* old = AddOld("old");
  PuppetLink* a = AddWorker("a");
  a->sequences = 20;  // the old worker has less to do
  a->SayState();
  Client client;
  Begin(&client, Constrained());
  ASSERT_EQ(a->prepares.size(), 1);
  a->AnswerPrepare({1, 2, 3});
  ASSERT_EQ(a->runs.size(), 1);
  a->runs[0]->Say({10, 11});
  Crash(a);
  loop_.Advance(absl::Seconds(5));
  EXPECT_TRUE(old->runs.empty());
  EXPECT_FALSE(client.status.has_value());
  PuppetLink* b = AddWorker("b");
  loop_.Advance(absl::Seconds(5));
  ASSERT_EQ(b->runs.size(), 1);
  EXPECT_EQ(b->runs[0]->start.output_token_ids_size(), 2);
  EXPECT_EQ(b->runs[0]->start.constraint().regex(), "a+");
  b->runs[0]->Say({12}, v1::STOP);
  TakeAll(&client);
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10, 11, 12}));
}

TEST_F(OlderWorkersTest, AConstrainedResponseEndsIfNoWorkerKnowsConstraints) {
  AddOld("old");
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Constrained());
  a->AnswerPrepare({1, 2, 3});
  a->runs[0]->Say({10});
  Crash(a);
  for (int second = 0; second < 60; ++second) loop_.Advance(absl::Seconds(1));
  TakeAll(&client);
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(client.status->code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(client.status->message(), "older release")) << *client.status;
}

TEST_F(OlderWorkersTest, AConstrainedResponseStaysAtADrainingWorker) {
  PuppetLink* old = AddOld("old");
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Constrained());
  a->AnswerPrepare({1, 2, 3});
  a->runs[0]->Say({10});
  a->runs[0]->SayMigrate();
  EXPECT_FALSE(a->runs[0]->gone);
  EXPECT_TRUE(old->runs.empty());
  PuppetLink* b = AddWorker("b");
  loop_.RunAll();
  EXPECT_TRUE(a->runs[0]->gone);
  EXPECT_EQ(b->runs.size(), 1);
}

TEST_F(OlderWorkersTest, OtherResponsesMoveToAnyWorker) {
  PuppetLink* old = AddOld("old");
  PuppetLink* a = AddWorker("a");
  old->sequences = 20;
  old->SayState();
  Client client;
  Begin(&client, Text());
  a->AnswerPrepare({1, 2, 3});
  a->runs[0]->Say({10});
  Crash(a);
  loop_.Advance(absl::Seconds(5));
  EXPECT_EQ(old->runs.size(), 1);
}

// The previous release reports its features only when it prepares a prompt.
TEST_F(OlderWorkersTest, AWorkerMayReportItsFeaturesWithThePrompt) {
  PuppetLink* worker = AddOld("a");
  worker->understands = 3;
  Client client;
  Begin(&client, Constrained());
  worker->AnswerPrepare({1, 2, 3});
  ASSERT_EQ(worker->runs.size(), 1);
  worker->SayState();
  worker->runs[0]->Say({10}, v1::STOP);
  TakeAll(&client);
  EXPECT_TRUE(client.status->ok()) << *client.status;
}

}  // namespace
}  // namespace tidepool::service
