// The choices of one prompt in one stream.
#include "service/front/choices.h"

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

class ChoicesTest : public FrontTest {
 protected:
  static v1::GenerateRequest Several(int32_t n) {
    v1::GenerateRequest request = Text();
    request.set_n(n);
    return request;
  }
  // Responds to every Prepare that has arrived.
  void AnswerAll(PuppetLink* worker) {
    for (; answered_ < worker->prepares.size(); ++answered_) {
      worker::v1::PrepareResponse response;
      response.mutable_token_ids()->Add(5);
      response.set_model_digest("d");
      response.mutable_stopping()->set_max_tokens(1000);
      response.set_understands(kUnderstands);
      response.set_prompt_text("p");
      worker->prepares[answered_].second(std::move(response));
    }
    loop_.RunAll();
  }
  void TakeAll(Client* client) {
    loop_.RunAll();
    while (client->writing) client->Take(), loop_.RunAll();
  }
  static std::map<int, std::vector<int32_t>> ByIndex(const Client& client) {
    std::map<int, std::vector<int32_t>> tokens;
    for (const v1::GenerateResponse& message : client.messages) {
      for (const int32_t id : message.token_ids()) tokens[message.index()].push_back(id);
    }
    return tokens;
  }
  static void SayEnd(PuppetLink::Run_* run, int32_t token, int64_t tokens) {
    worker::v1::RunResponse response;
    response.set_attempt(run->start.attempt());
    response.set_position(run->position);
    response.add_token_ids(token);
    response.set_finish_reason(v1::LENGTH);
    response.mutable_usage()->set_prompt_tokens(3);
    response.mutable_usage()->set_completion_tokens(tokens);
    run->events.on_response(std::move(response));
  }

  size_t answered_ = 0;
};

TEST_F(ChoicesTest, InterleavesByIndexAndCountsThePromptOnce) {
  PuppetLink* worker = AddWorker("a");
  v1::GenerateRequest request = Several(3);
  request.mutable_sampling()->set_seed(40);
  request.set_request_id("r");
  request.set_echo(true);
  Client client;
  Begin(&client, request);
  AnswerAll(worker);
  ASSERT_EQ(worker->runs.size(), 3);
  std::set<uint64_t> seeds;
  for (const auto& [prepare, done] : worker->prepares) {
    seeds.insert(prepare.request().sampling().seed());
  }
  EXPECT_EQ(seeds, (std::set<uint64_t>{40, 41, 42}));
  worker->runs[1]->Say({11});
  worker->runs[0]->Say({1});
  TakeAll(&client);
  worker->runs[2]->Say({21, 22});
  SayEnd(worker->runs[1].get(), 12, 2);
  SayEnd(worker->runs[0].get(), 2, 2);
  TakeAll(&client);
  EXPECT_FALSE(client.status.has_value());
  SayEnd(worker->runs[2].get(), 23, 3);
  TakeAll(&client);
  ASSERT_TRUE(client.status.has_value());
  EXPECT_TRUE(client.status->ok()) << *client.status;
  EXPECT_EQ(ByIndex(client),
            (std::map<int, std::vector<int32_t>>{{0, {1, 2}}, {1, {11, 12}}, {2, {21, 22, 23}}}));
  int with_prompt = 0, with_usage = 0;
  for (const v1::GenerateResponse& message : client.messages) {
    EXPECT_EQ(message.request_id(), "r");
    with_prompt += message.prompt_token_ids_size() > 0;
    with_usage += message.has_usage();
  }
  EXPECT_EQ(with_prompt, 1);
  EXPECT_EQ(with_usage, 1);
  EXPECT_EQ(client.messages.back().usage().prompt_tokens(), 3);
  EXPECT_EQ(client.messages.back().usage().completion_tokens(), 7);
}

TEST_F(ChoicesTest, OneThatFailsEndsAll) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Several(2));
  AnswerAll(worker);
  ASSERT_EQ(worker->runs.size(), 2);
  worker->runs[0]->Say({1});
  worker->runs[1]->events.on_end(absl::InternalError("broken"), EndedBy::kWorker);
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(client.status->message(), "broken");
  loop_.RunAll();
  EXPECT_TRUE(worker->runs[0]->gone);
}

TEST_F(ChoicesTest, AClientThatLeavesEndsAll) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Several(2));
  AnswerAll(worker);
  client.generation->Cancel(absl::CancelledError("gone"));
  loop_.RunAll();
  EXPECT_TRUE(worker->runs[0]->gone);
  EXPECT_TRUE(worker->runs[1]->gone);
  EXPECT_EQ(client.status->message(), "gone");
}

TEST_F(ChoicesTest, ARepeatedRequestGetsTheSameResponses) {
  PuppetLink* worker = AddWorker("a");
  v1::GenerateRequest request = Several(2);
  request.set_request_id("r");
  Client first;
  Begin(&first, request);
  AnswerAll(worker);
  SayEnd(worker->runs[0].get(), 1, 1);
  SayEnd(worker->runs[1].get(), 2, 1);
  TakeAll(&first);
  Client again;
  Begin(&again, request);
  TakeAll(&again);
  EXPECT_EQ(ByIndex(again), ByIndex(first));
  EXPECT_EQ(worker->runs.size(), 2);
  // A request with the same name and without n is a different request.
  request.clear_n();
  Client other;
  Begin(&other, request);
  EXPECT_EQ(other.status->code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(ChoicesTest, NotWithASessionAndNotFromTheMiddle) {
  AddWorker("a");
  v1::GenerateRequest request = SessionTurn();
  request.set_n(2);
  Client client;
  Begin(&client, request);
  EXPECT_EQ(client.status->code(), absl::StatusCode::kInvalidArgument);
  request = Several(2);
  request.set_request_id("r");
  request.set_resume_after(1);
  Client resumed;
  Begin(&resumed, request);
  EXPECT_EQ(resumed.status->code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidepool::service
