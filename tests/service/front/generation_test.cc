// Generations with workers that the test controls.
#include "service/front/generation.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "service/front/credit_window.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

using GenerationTest = FrontTest;

TEST_F(GenerationTest, RelaysAndRenewsCreditAsTheClientTakes) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Text());
  worker->AnswerPrepare({1, 2, 3});
  ASSERT_EQ(worker->runs.size(), 1);
  auto run = worker->runs[0];
  EXPECT_EQ(run->start.prompt_length(), 3);
  EXPECT_EQ(run->credit, 256);
  run->Say({10});
  run->Say({11, 12});
  run->Say({13});
  // The client has not received the first message yet. So the rest waits, and the worker gets no
  // credit.
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10}));
  EXPECT_EQ(run->credit, 256);
  client.Take();
  EXPECT_EQ(run->credit, 257);
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10, 11, 12, 13}));
  EXPECT_EQ(client.messages.size(), 2);
  EXPECT_EQ(client.messages[1].position(), 1);
  EXPECT_EQ(client.messages[1].text(), "t11 t12 t13 ");
  client.Take();
  run->Say({14}, v1::STOP);
  run->events.on_end(absl::OkStatus(), EndedBy::kWorker);
  EXPECT_FALSE(client.status.has_value());
  client.Take();
  ASSERT_TRUE(client.status.has_value());
  EXPECT_TRUE(client.status->ok());
  EXPECT_EQ(client.messages.back().finish_reason(), v1::STOP);
}

TEST_F(GenerationTest, ContinuesAtAnotherWorker) {
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Text());
  a->AnswerPrepare({1, 2, 3});
  PuppetLink* b = AddWorker("b");
  b->numerics = "other";
  b->SayState();
  a->runs[0]->Say({10, 11});
  client.Take();
  a->runs[0]->Say({12});  // on its way to the client when the worker dies
  a->runs[0]->events.on_end(absl::UnavailableError("connection reset"), EndedBy::kCrash);
  EXPECT_TRUE(a->runs[0]->gone);
  EXPECT_TRUE(b->runs.empty());
  loop_.Advance(absl::Seconds(1));
  ASSERT_EQ(b->runs.size(), 1);
  const worker::v1::Start& start = b->runs[0]->start;
  EXPECT_EQ(start.attempt(), 1);
  EXPECT_EQ(start.output_token_ids_size(), 3);
  EXPECT_EQ(start.credit(), 255);
  b->runs[0]->Say({13}, v1::LENGTH);
  client.Take();
  client.Take();
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10, 11, 12, 13}));
  EXPECT_TRUE(client.status->ok());
  EXPECT_TRUE(client.messages.back().usage().numerics_changed());
}

TEST_F(GenerationTest, ALongResponseOutlivesAnyNumberOfFailures) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Text());
  worker->AnswerPrepare({1});
  for (int failure = 0; failure < 30; ++failure) {
    ASSERT_EQ(worker->runs.size(), failure + 1);
    worker->runs.back()->Say({1, 2, 3, 4, 5, 6, 7, 8});
    client.Take();
    worker->runs.back()->events.on_end(absl::UnavailableError("expert 7 cannot be read"),
                                       EndedBy::kWorker);
    loop_.Advance(absl::Seconds(1));
  }
  EXPECT_FALSE(client.status.has_value());
  EXPECT_EQ(client.tokens.size(), 240);
  client.generation->Cancel(absl::CancelledError("end of the test"));
}

// A stream without credit computes nothing. So a crash counts neither against its prompt nor as a
// failed attempt.
TEST_F(GenerationTest, AStreamThatIsNotReadIsNotToBlameForCrashes) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Text());
  worker->AnswerPrepare({1});
  worker->runs[0]->Say(std::vector<int32_t>(CreditWindow::kTokens, 7));
  for (int crash = 1; crash <= 5; ++crash) {
    ASSERT_EQ(worker->runs.size(), crash);
    worker->runs.back()->events.on_end(absl::UnavailableError("reset"), EndedBy::kCrash);
    ASSERT_FALSE(client.status.has_value()) << *client.status;
    loop_.Advance(absl::Seconds(2));
    worker->SayState();
  }
  EXPECT_EQ(worker->runs.back()->credit, 0);
  client.Take();
  EXPECT_EQ(worker->runs.back()->credit, CreditWindow::kTokens);
  worker->runs.back()->Say({8}, v1::STOP);
  client.Take();
  EXPECT_TRUE(client.status->ok());
}

TEST_F(GenerationTest, ARequestThatNoWorkerTookIsRetriedForThirtySeconds) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Text());
  worker->AnswerPrepare({1});
  for (int tries = 1; tries <= 10; ++tries) {
    ASSERT_EQ(worker->runs.size(), tries);
    worker->runs.back()->events.on_end(absl::UnavailableError("refused"), EndedBy::kAway);
    loop_.Advance(absl::Seconds(2));
    ASSERT_FALSE(client.status.has_value());
  }
  loop_.Advance(absl::Seconds(12));
  worker->runs.back()->events.on_end(absl::UnavailableError("refused"), EndedBy::kAway);
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(client.status->code(), absl::StatusCode::kUnavailable);
}

TEST_F(GenerationTest, AStreamLeavesAWorkerThatFellSilent) {
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Text());
  a->AnswerPrepare({1});
  PuppetLink* b = AddWorker("b");
  a->runs[0]->Say({10});
  client.Take();
  // The stream stays on this worker until another worker serves the model.
  loop_.Advance(absl::Seconds(3));
  EXPECT_FALSE(a->runs[0]->gone);
  b->SayState();
  loop_.Advance(absl::Milliseconds(250));
  EXPECT_TRUE(a->runs[0]->gone);
  b->SayState();
  loop_.Advance(absl::Milliseconds(250));
  ASSERT_EQ(b->runs.size(), 1);
  b->runs[0]->Say({11}, v1::LENGTH);
  client.Take();
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10, 11}));
  EXPECT_TRUE(client.status->ok());
}

TEST_F(GenerationTest, APromptIsPreparedElsewhereWhenItsWorkerFallsSilent) {
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Text());
  ASSERT_EQ(a->prepares.size(), 1);
  loop_.Advance(absl::Seconds(2));
  PuppetLink* b = AddWorker("b");
  loop_.Advance(absl::Milliseconds(250));
  loop_.Advance(absl::Milliseconds(250));
  ASSERT_EQ(b->prepares.size(), 1);
  a->AnswerPrepare({1});  // too late to have an effect
  EXPECT_TRUE(a->runs.empty());
  b->AnswerPrepare({1});
  ASSERT_EQ(b->runs.size(), 1);
  b->runs[0]->Say({10}, v1::LENGTH);
  client.Take();
  EXPECT_TRUE(client.status->ok());
}

TEST_F(GenerationTest, OnlyAFifthOfTheStreamsComesBackAtOnce) {
  PuppetLink* a = AddWorker("a");
  constexpr int kStreams = 30;
  std::vector<Client> clients(kStreams);
  for (int i = 0; i < kStreams; ++i) {
    v1::GenerateRequest request;
    request.set_text(absl::StrCat("prompt ", i));
    Begin(&clients[i], request);
    a->AnswerPrepare({1, i});
    a->runs.back()->Say({1, 2, 3, 4, 5, 6, 7, 8});
    clients[i].Take();
  }
  PuppetLink* b = AddWorker("b");
  a->lose(absl::UnavailableError("reset"));
  for (const auto& run : a->runs) {
    run->events.on_end(absl::UnavailableError("expert 7 cannot be read"), EndedBy::kWorker);
  }
  loop_.Advance(absl::Seconds(1));
  EXPECT_EQ(b->runs.size(), kStreams / 5);
  b->runs[0]->Say({9});
  loop_.RunAll();
  EXPECT_EQ(b->runs.size(), kStreams / 5 + 1);
  for (size_t i = 1; i < b->runs.size(); ++i) {
    b->runs[i]->Say({9});
    loop_.RunAll();
  }
  EXPECT_EQ(b->runs.size(), kStreams);
  for (Client& client : clients) client.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST_F(GenerationTest, TheClientGetsTheErrorOfLivingWorkers) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Text());
  worker->AnswerPrepare({1});
  for (int attempt = 0; attempt < 3; ++attempt) {
    ASSERT_EQ(worker->runs.size(), attempt + 1);
    ASSERT_FALSE(client.status.has_value());
    worker->runs.back()->events.on_end(absl::UnavailableError("expert 7 cannot be read"),
                                       EndedBy::kWorker);
    loop_.Advance(absl::Seconds(1));
  }
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(*client.status, absl::UnavailableError("expert 7 cannot be read"));
}

TEST_F(GenerationTest, AWrongPositionIsNotRelayed) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Text());
  worker->AnswerPrepare({1});
  worker->runs[0]->position = 5;
  worker->runs[0]->Say({10});
  EXPECT_TRUE(client.tokens.empty());
  EXPECT_EQ(client.status->code(), absl::StatusCode::kInternal);
}

TEST_F(GenerationTest, WaitsForAWorkerThirtySeconds) {
  Client early;
  Begin(&early, Text());
  EXPECT_FALSE(early.status.has_value());
  loop_.Advance(absl::Seconds(10));
  PuppetLink* worker = AddWorker("a");
  loop_.RunAll();
  EXPECT_EQ(worker->prepares.size(), 1);

  worker->lose(absl::UnavailableError("gone"));
  Client late;
  v1::GenerateRequest request = Text();
  Begin(&late, request);
  loop_.Advance(absl::Seconds(29));
  EXPECT_FALSE(late.status.has_value());
  loop_.Advance(absl::Seconds(2));
  ASSERT_TRUE(late.status.has_value());
  EXPECT_EQ(late.status->code(), absl::StatusCode::kUnavailable);
  early.generation->Cancel(absl::CancelledError("end of the test"));
}

TEST_F(GenerationTest, AJumpOfTheWallClockEndsNoWait) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Text());
  worker->AnswerPrepare({1});
  worker->lose(absl::UnavailableError("gone"));
  clock_.JumpWall(absl::Hours(1));
  worker->runs[0]->events.on_end(absl::UnavailableError("reset"), EndedBy::kAway);
  loop_.Advance(absl::Seconds(20));
  EXPECT_FALSE(client.status.has_value());
  clock_.JumpWall(-absl::Hours(2));
  loop_.Advance(absl::Seconds(11));
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(client.status->code(), absl::StatusCode::kUnavailable);
}

TEST_F(GenerationTest, AFullQueueIsTriedElsewhereOnce) {
  PuppetLink* a = AddWorker("a");
  Client client;
  Begin(&client, Text());
  a->AnswerPrepare({1});
  PuppetLink* b = AddWorker("b");
  a->runs[0]->events.on_end(absl::ResourceExhaustedError("the queue is full"), EndedBy::kWorker);
  loop_.Advance(absl::Seconds(1));
  ASSERT_EQ(b->runs.size(), 1);
  b->runs[0]->events.on_end(absl::ResourceExhaustedError("the queue is full"), EndedBy::kWorker);
  loop_.Advance(absl::Seconds(1));
  EXPECT_EQ(client.status->code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(GenerationTest, LogsBeforeItRelays) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, SessionTurn());
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1, 2, 3});
  worker->runs[0]->Say({10});
  // the store has acknowledged the append, but this loop has not received that yet
  EXPECT_TRUE(client.tokens.empty());
  loop_.RunUntil([&] { return client.writing; });
  EXPECT_EQ(Log().token_ids, (std::vector<int32_t>{1, 2, 3, 10}));
  client.Take();
  worker->runs[0]->Say({11}, v1::STOP);
  loop_.RunUntil([&] { return client.writing; });
  const SessionLogData log = Log();
  EXPECT_EQ(log.token_ids, (std::vector<int32_t>{1, 2, 3, 10, 11}));
  EXPECT_FALSE(log.info.busy);
  EXPECT_EQ(log.turns[0].finish, TurnFinish::kStop);
  client.Take();
  EXPECT_TRUE(client.status->ok());
}

TEST_F(GenerationTest, AFailureBeforeTheFirstTokenLeavesNoTrace) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  const v1::GenerateRequest turn = SessionTurn();
  Begin(&client, turn);
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1, 2, 3});
  worker->runs[0]->events.on_end(absl::InternalError("the model failed"), EndedBy::kWorker);
  EXPECT_EQ(client.status->code(), absl::StatusCode::kInternal);
  const SessionLogData log = Log();
  EXPECT_TRUE(log.turns.empty());
  EXPECT_TRUE(log.token_ids.empty());
  EXPECT_FALSE(log.info.busy);
}

TEST_F(GenerationTest, ACancelledTurnKeepsItsLoggedTokens) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, SessionTurn());
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1});
  worker->runs[0]->Say({10});
  worker->runs[0]->Say({11});
  client.generation->Cancel(absl::CancelledError("gone"));
  EXPECT_TRUE(worker->runs[0]->gone);
  const SessionLogData log = Log();
  EXPECT_EQ(log.token_ids, (std::vector<int32_t>{1, 10, 11}));
  EXPECT_EQ(log.turns[0].finish, TurnFinish::kCancelled);
  EXPECT_FALSE(log.info.busy);
}

TEST_F(GenerationTest, AFullDiskEndsTheTurnBeforeAnUnloggedTokenIsSent) {
  core_ = nullptr;
  store_ = SqliteSessionStore::Open({.path = ":memory:", .max_bytes = 256 << 10, .clock = &clock_})
               .value();
  core_ = std::make_unique<FrontCore>(&loop_, &clock_, store_.get(),
                                      [](LogLevel, absl::string_view) {});
  PuppetLink* worker = AddWorker("a");
  const v1::GenerateRequest turn = SessionTurn();
  // The store responds to calls in order, so when the last call is complete, all are.
  absl::Status filled;
  for (int i = 0; i < 100; ++i) {
    SessionLogData ballast;
    ballast.info = {.session_id = absl::StrCat("ballast", i), .model = "m", .model_digest = "d"};
    ballast.token_ids.assign(1000, 7);
    store_->Insert(ballast, [&](absl::StatusOr<SessionInfo> info) { filled = info.status(); });
  }
  Log();
  ASSERT_EQ(filled.code(), absl::StatusCode::kResourceExhausted) << filled;
  // There is room for the beginning of a turn, but not for its prompt.
  absl::Status deleted = absl::UnknownError("no answer");
  store_->Delete("", "ballast0", [&](absl::Status status) { deleted = std::move(status); });
  Log();
  ASSERT_TRUE(deleted.ok()) << deleted;
  Client client;
  Begin(&client, turn);
  loop_.RunUntil([&] { return !worker->prepares.empty() || client.status.has_value(); });
  ASSERT_FALSE(client.status.has_value()) << *client.status;
  worker->AnswerPrepare(std::vector<int32_t>(3000, 1));
  worker->runs[0]->Say({10, 11});
  loop_.RunUntil([&] { return client.status.has_value(); });
  EXPECT_EQ(client.status->code(), absl::StatusCode::kResourceExhausted) << *client.status;
  EXPECT_TRUE(client.tokens.empty());
  EXPECT_TRUE(Log().token_ids.empty());

  // Now there is room again, and the store works.
  for (int i = 0; i < 100; ++i) store_->Delete("", absl::StrCat("ballast", i), [](absl::Status) {});
  clock_.Advance(absl::Seconds(11));
  Client again;
  Begin(&again, turn);
  loop_.RunUntil([&] { return worker->prepares.size() == 2; });
  worker->AnswerPrepare(std::vector<int32_t>(3000, 1));
  worker->runs[1]->Say({10, 11});
  loop_.RunUntil([&] { return !again.tokens.empty() || again.status.has_value(); });
  EXPECT_EQ(again.tokens, (std::vector<int32_t>{10, 11}));
  EXPECT_EQ(Log().info.token_count, 3002);
}

TEST_F(GenerationTest, ASessionEndsAtItsLimit) {
  core_ = std::make_unique<FrontCore>(
      &loop_, &clock_, store_.get(), [](LogLevel, absl::string_view) {},
      FrontLimits{.max_session_tokens = 10});
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, SessionTurn());
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1, 2, 3});
  ASSERT_EQ(worker->runs.size(), 1);
  EXPECT_EQ(worker->runs[0]->start.prepared().stopping().max_tokens(), 7);
  Client full;
  v1::GenerateRequest request = Text();
  request.set_session_id("s");
  client.generation->Cancel(absl::CancelledError("gone"));
  loop_.RunUntil([&] { return client.status.has_value(); });
  Begin(&full, request);
  loop_.RunUntil([&] { return worker->prepares.size() == 2; });
  worker->AnswerPrepare(std::vector<int32_t>(10, 1));
  loop_.RunUntil([&] { return full.status.has_value(); });
  EXPECT_EQ(full.status->code(), absl::StatusCode::kFailedPrecondition) << *full.status;
  EXPECT_EQ(worker->runs.size(), 1);
}

TEST_F(GenerationTest, ALostLeaseEndsTheStream) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, SessionTurn());
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1});
  worker->runs[0]->Say({10});
  loop_.RunUntil([&] { return client.writing; });
  // The lease has expired. So another front can take the session.
  clock_.Advance(absl::Seconds(11));
  bool taken = false;
  store_->BeginTurn({.session_id = "s", .request_id = "other"}, [&](absl::StatusOr<OpenTurn> turn) {
    EXPECT_TRUE(turn.ok());
    loop_.Post([&] { taken = true; });
  });
  loop_.RunUntil([&] { return taken; });
  worker->runs[0]->Say({11});
  loop_.RunUntil([&] { return client.status.has_value(); });
  EXPECT_EQ(client.status->code(), absl::StatusCode::kAborted);
  EXPECT_EQ(client.tokens, (std::vector<int32_t>{10}));
}

// Another turn of the same session runs at another front.
class RivalTest : public GenerationTest {
 protected:
  absl::Status Rival() {
    std::optional<absl::Status> end;
    store_->BeginTurn({.session_id = "s", .request_id = "rival"},
                      [&](absl::StatusOr<OpenTurn> turn) {
                        loop_.Post([&end, status = turn.status()] { end = status; });
                      });
    loop_.RunUntil([&] { return end.has_value(); });
    return *end;
  }
};

TEST_F(RivalTest, ATurnKeepsItsLeaseForAsLongAsItRuns) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, SessionTurn());
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1});
  for (int seconds = 0; seconds < 45; ++seconds) {
    ASSERT_EQ(Rival().code(), absl::StatusCode::kAborted) << seconds;
    loop_.Advance(absl::Seconds(1));
  }
  worker->runs[0]->Say({10}, v1::STOP);
  loop_.RunUntil([&] { return client.writing; });
  client.Take();
  EXPECT_TRUE(client.status->ok()) << *client.status;
  EXPECT_EQ(Rival(), absl::OkStatus());
}

// A turn that waits for its next token also notices this, and frees its worker.
TEST_F(RivalTest, ALostLeaseIsFoundWhenItIsRenewed) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, SessionTurn());
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1});
  clock_.Advance(absl::Seconds(11));  // this has the same effect as suspending this front
  ASSERT_EQ(Rival(), absl::OkStatus());
  EXPECT_FALSE(client.status.has_value());
  loop_.Advance(absl::ZeroDuration());
  loop_.RunUntil([&] { return client.status.has_value(); });
  EXPECT_EQ(client.status->code(), absl::StatusCode::kAborted) << *client.status;
  EXPECT_TRUE(worker->runs[0]->gone);
}

}  // namespace
}  // namespace tidepool::service
