// The prompt report of a response whose workers fail.
#include "service/front/prompt_report.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

class PromptReportTest : public FrontTest {
 protected:
  static v1::GenerateRequest Scored() {
    v1::GenerateRequest request = Text();
    request.set_prompt_logprobs(1);
    return request;
  }
  // The worker reports `count` prompt tokens. The first one is at position `first`. The entry of
  // position i is for token 100 + i.
  static void SayPrompt(PuppetLink::Run_* run, int64_t first, int count) {
    worker::v1::RunResponse response;
    response.set_attempt(run->start.attempt());
    response.set_position(run->position);
    response.set_prompt_position(first);
    for (int i = 0; i < count; ++i) {
      response.add_prompt_logprobs()->set_token_id(static_cast<int32_t>(100 + first + i));
    }
    run->events.on_response(std::move(response));
  }
  static std::vector<int32_t> Told(const Client& client) {
    std::vector<int32_t> ids;
    for (const v1::GenerateResponse& message : client.messages) {
      for (const v1::TokenLogprob& token : message.prompt_logprobs()) {
        ids.push_back(token.token_id());
      }
    }
    return ids;
  }
  static void TakeAll(Client* client) {
    while (client->writing) client->Take();
  }
};

TEST_F(PromptReportTest, ContinuesAtAnotherWorkerWhereItStopped) {
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Scored());
  a->AnswerPrepare({100, 101, 102, 103, 104});
  PuppetLink* b = AddWorker("b");
  EXPECT_TRUE(a->runs[0]->start.has_prompt_logprobs());
  EXPECT_EQ(a->runs[0]->start.prompt_logprobs_from(), 0);
  SayPrompt(a->runs[0].get(), 0, 3);
  a->runs[0]->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
  loop_.Advance(absl::Seconds(1));
  ASSERT_EQ(b->runs.size(), 1);
  EXPECT_EQ(b->runs[0]->start.prompt_logprobs_from(), 3);
  SayPrompt(b->runs[0].get(), 3, 2);
  b->runs[0]->Say({7}, v1::LENGTH);
  b->runs[0]->events.on_end(absl::OkStatus(), EndedBy::kWorker);
  TakeAll(&client);
  EXPECT_TRUE(client.status->ok()) << *client.status;
  EXPECT_EQ(Told(client), (std::vector<int32_t>{100, 101, 102, 103, 104}));
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{7}));
}

TEST_F(PromptReportTest, ClientsThatDoNotReadHoldTheWorkerBack) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Scored());
  worker->AnswerPrepare(std::vector<int32_t>(1000, 5));
  auto run = worker->runs[0];
  const int64_t window = run->credit;
  SayPrompt(run.get(), 0, 100);
  SayPrompt(run.get(), 100, 100);
  EXPECT_EQ(run->credit, window);
  client.Take();
  EXPECT_EQ(run->credit, window + 100);
  client.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST_F(PromptReportTest, AWorkerThatRepeatsOrSkipsIsADefect) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Scored());
  worker->AnswerPrepare({100, 101, 102});
  SayPrompt(worker->runs[0].get(), 0, 2);
  SayPrompt(worker->runs[0].get(), 1, 2);
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(client.status->code(), absl::StatusCode::kInternal);
}

TEST_F(PromptReportTest, WorkersOfAnEarlierReleaseAreRefused) {
  PuppetLink* worker = AddWorker("a");
  worker->understands = 0;
  for (const char* field : {"prompt_logprobs", "echo", "min_tokens", "logit_bias_text"}) {
    v1::GenerateRequest request = Text();
    const std::string name = field;
    if (name == "prompt_logprobs") request.set_prompt_logprobs(0);
    if (name == "echo") request.set_echo(true);
    if (name == "min_tokens") request.mutable_stopping()->set_min_tokens(1);
    if (name == "logit_bias_text") {
      (*request.mutable_sampling()->mutable_logit_bias_text())["a"] = 1;
    }
    Client client;
    Begin(&client, request);
    worker->AnswerPrepare({1});
    ASSERT_TRUE(client.status.has_value()) << name;
    EXPECT_EQ(client.status->code(), absl::StatusCode::kUnimplemented);
    EXPECT_TRUE(absl::StrContains(client.status->message(), name)) << *client.status;
  }
  // The request is prepared on a newer worker and runs on an older one.
  worker->understands = kUnderstands;
  Client client;
  Begin(&client, Scored());
  worker->AnswerPrepare({1, 2});
  worker->runs.back()->Say({9});
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(client.status->code(), absl::StatusCode::kUnimplemented);
}

TEST_F(PromptReportTest, EchoComesFirstAndOnce) {
  PuppetLink* a = AddWorker("a");
  v1::GenerateRequest request = Text();
  request.set_echo(true);
  Client client;
  Begin(&client, request);
  a->AnswerPrepare({1, 2, 3});
  PuppetLink* b = AddWorker("b");
  a->runs[0]->Say({10});
  a->runs[0]->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
  loop_.Advance(absl::Seconds(1));
  b->runs[0]->Say({11}, v1::STOP);
  TakeAll(&client);
  EXPECT_EQ(client.messages[0].prompt_text(), "the prompt");
  EXPECT_EQ(client.messages[0].prompt_token_ids_size(), 3);
  EXPECT_EQ(client.messages[0].token_ids_size(), 0);
  for (size_t i = 1; i < client.messages.size(); ++i) {
    EXPECT_EQ(client.messages[i].prompt_token_ids_size(), 0);
  }
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10, 11}));
}

// A repeated request gets the prompt report again, unless it resumes after some output tokens.
TEST_F(PromptReportTest, ANamedRequestReportsItsPromptAgain) {
  PuppetLink* worker = AddWorker("a");
  v1::GenerateRequest request = Scored();
  request.set_request_id("r");
  Client first;
  Begin(&first, request);
  worker->AnswerPrepare({100, 101, 102});
  SayPrompt(worker->runs[0].get(), 0, 3);
  worker->runs[0]->Say({7});
  loop_.RunAll();
  while (first.writing) first.Take(), loop_.RunAll();
  Client again;
  Begin(&again, request);
  while (again.writing) again.Take(), loop_.RunAll();
  EXPECT_EQ(Told(again), Told(first));
  EXPECT_EQ(again.tokens, first.tokens);
  request.set_resume_after(1);
  Client resumed;
  Begin(&resumed, request);
  worker->runs[0]->Say({8}, v1::LENGTH);
  loop_.RunAll();
  while (resumed.writing) resumed.Take(), loop_.RunAll();
  EXPECT_EQ(Told(resumed), std::vector<int32_t>());
  EXPECT_EQ(resumed.tokens, (std::vector<int32_t>{8}));
}

TEST_F(PromptReportTest, ProgressOfASessionsTurnIsNotInItsLog) {
  PuppetLink* worker = AddWorker("a");
  v1::GenerateRequest request = SessionTurn();
  request.set_return_progress(true);
  Client client;
  Begin(&client, request);
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1, 2});
  worker::v1::RunResponse response;
  response.mutable_progress()->set_processed(1);
  EXPECT_TRUE(worker->runs[0]->start.return_progress());
  worker->runs[0]->events.on_response(response);
  ASSERT_TRUE(client.writing);
  EXPECT_EQ(client.messages[0].progress().processed(), 1);
  EXPECT_EQ(Log().token_ids.size(), 0);
  client.generation->Cancel(absl::CancelledError("end of the test"));
}

}  // namespace
}  // namespace tidepool::service
