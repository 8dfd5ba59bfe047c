// Turns of sessions whose front is gone. Clients that return get them from the log.
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "service/front/logged_turn.h"
#include "tests/service/front/idempotency_cache_fixture.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;
using Tokens = std::vector<int32_t>;

// Starts another front, or this front again after a crash. Only the session's log is left.
class LoggedTurnTest : public IdempotencyCacheTest {
 protected:
  void StartAnotherFront() {
    core_ = nullptr;
    core_ = std::make_unique<FrontCore>(&loop_, &clock_, store_.get(),
                                        [](LogLevel, absl::string_view) {});
  }

  // Leaves a turn in the log, with the output {10, 11, 12}. The turn has ended if `finish` says so.
  v1::GenerateRequest Leave(v1::FinishReason finish) {
    PuppetLink* worker = AddWorker("a");
    worker->lead = lead_;
    const v1::GenerateRequest request = Named(SessionTurn());
    Client client;
    Begin(&client, request);
    loop_.RunUntil([&] { return !worker->prepares.empty(); });
    worker->AnswerPrepare({1, 2});
    LastRun(worker).Say({10, 11});
    LastRun(worker).Say({12}, finish);
    loop_.RunUntil([&] { return !client.messages.empty(); });
    loop_.RunUntil([&] { return Log().info.token_count == 5; });
    StartAnotherFront();
    return request;
  }

  PuppetLink* Return(Client* client, const v1::GenerateRequest& request, Tokens prompt = {1, 2}) {
    PuppetLink* worker = AddWorker("b");
    worker->lead = lead_;
    Begin(client, request);
    loop_.RunUntil([&] { return !worker->prepares.empty() || client->status.has_value(); });
    if (client->status.has_value()) return worker;
    worker->AnswerPrepare(std::move(prompt));
    loop_.RunAll();
    return worker;
  }

  std::string lead_;
};

// If a response begins with a space, the space belongs to its first token. So only a client without
// any token gets it.
TEST_F(LoggedTurnTest, TheLeadingSpaceOfAResponseComesOnce) {
  lead_ = " ";
  const v1::GenerateRequest request = Leave(v1::STOP);
  const std::vector<std::string> texts = {" t10 t11 t12 ", "t11 t12 ", "t12 ", ""};
  for (uint64_t received = 0; received < texts.size(); ++received) {
    StartAnotherFront();
    Client client;
    Return(&client, Named(request, received));
    TakeAll(&client);
    ASSERT_TRUE(client.status.has_value());
    EXPECT_TRUE(client.status->ok()) << *client.status;
    EXPECT_EQ(TextOf(client), texts[received]) << received;
    loop_.RunUntil([&] { return !Log().info.busy; });
  }
}

TEST_F(LoggedTurnTest, ATurnContinuesWhereItsLogEnds) {
  const v1::GenerateRequest request = Leave(v1::FINISH_REASON_UNSPECIFIED);
  Client client;
  PuppetLink* worker = Return(&client, Named(request, 1));
  EXPECT_EQ(worker->prepares[0].first.session().token_ids_size(), 0);
  ASSERT_EQ(worker->runs.size(), 1);
  EXPECT_EQ(LastRun(worker).start.output_token_ids_size(), 3);
  EXPECT_EQ(client.tokens, (Tokens{11, 12}));
  EXPECT_EQ(client.messages[0].position(), 1);
  EXPECT_EQ(client.messages[0].text(), "t11 t12 ");
  LastRun(worker).Say({13}, v1::STOP);
  loop_.RunUntil([&] { return Log().info.token_count == 6; });
  TakeAll(&client);
  EXPECT_EQ(client.tokens, (Tokens{11, 12, 13}));
  const SessionLogData log = Log();
  EXPECT_EQ(log.token_ids, (Tokens{1, 2, 10, 11, 12, 13}));
  ASSERT_EQ(log.turns.size(), 1);
  EXPECT_EQ(log.turns[0].finish, TurnFinish::kStop);
  EXPECT_EQ(log.turns[0].response, "t10 t11 t12 t13 ");
  EXPECT_FALSE(log.info.busy);
}

TEST_F(LoggedTurnTest, AFinishedTurnIsGivenAgainFromItsLog) {
  const v1::GenerateRequest request = Leave(v1::STOP);
  Client client;
  PuppetLink* worker = Return(&client, Named(request, 2));
  TakeAll(&client);
  EXPECT_TRUE(worker->runs.empty());
  EXPECT_EQ(client.tokens, Tokens{12});
  EXPECT_EQ(TextOf(client), "t12 ");
  EXPECT_EQ(client.messages.back().finish_reason(), v1::STOP);
  EXPECT_EQ(client.messages.back().usage().completion_tokens(), 3);
  ASSERT_TRUE(client.status.has_value());
  EXPECT_TRUE(client.status->ok()) << *client.status;
  loop_.RunUntil([&] { return !Log().info.busy; });
  EXPECT_EQ(Log().turns.size(), 1);
}

// A wrong request at one front does not disturb the stream at another front.
TEST_F(LoggedTurnTest, AnotherBodyAtAnotherFrontDisturbsNothing) {
  FrontCore other(&loop_, &clock_, store_.get(), [](LogLevel, absl::string_view) {});
  PuppetLink* worker = AddWorker("a");
  const v1::GenerateRequest request = Named(SessionTurn());
  v1::GenerateRequest hotter = request;
  hotter.mutable_sampling()->set_temperature(0.5);
  v1::GenerateRequest stopping = request;
  stopping.mutable_stopping()->add_stop("t11");
  v1::GenerateRequest longer = request;
  longer.set_text("hello there");
  const auto expect_refused = [&](const char* when) {
    for (const auto& wrong : {hotter, stopping, longer}) {
      Client client;
      client.generation = other.Generate({.request = wrong}, &client);
      loop_.RunUntil([&] { return client.status.has_value(); });
      EXPECT_EQ(client.status->code(), StatusCode::kAlreadyExists) << when << *client.status;
    }
  };
  Client client;
  Begin(&client, request);
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  expect_refused("before a token is made");
  worker->AnswerPrepare({1, 2});
  LastRun(worker).Say({10});
  loop_.RunUntil([&] { return client.writing; });
  expect_refused("in the middle");
  LastRun(worker).Say({11}, v1::STOP);
  while (!client.status.has_value()) {
    loop_.RunUntil([&] { return client.writing || client.status.has_value(); });
    if (client.writing) client.Take();
  }
  EXPECT_TRUE(client.status->ok()) << *client.status;
  EXPECT_EQ(client.tokens, (Tokens{10, 11}));
  expect_refused("after its end");
  EXPECT_EQ(Log().turns.size(), 1);
}

// A repeated request may have other values in fields that the log does not keep.
TEST_F(LoggedTurnTest, ALoggedTurnComesBackWithoutItsLogprobs) {
  PuppetLink* first = AddWorker("a");
  v1::GenerateRequest request = Named(SessionTurn());
  request.set_logprobs(true);
  Client gone;
  Begin(&gone, request);
  loop_.RunUntil([&] { return !first->prepares.empty(); });
  first->AnswerPrepare({1, 2});
  LastRun(first).Say({10, 11});
  loop_.RunUntil([&] { return Log().info.token_count == 4; });
  StartAnotherFront();
  request.clear_logprobs();
  Client client;
  PuppetLink* worker = Return(&client, request);
  ASSERT_EQ(worker->runs.size(), 1);
  EXPECT_EQ(client.tokens, (Tokens{10, 11}));
}

TEST_F(LoggedTurnTest, ATurnContinuesAtAWorkerWithTheSameNumerics) {
  const v1::GenerateRequest request = Leave(v1::FINISH_REASON_UNSPECIFIED);
  EXPECT_EQ(Log().turns[0].numerics_id, "n");
  PuppetLink* idle = AddWorker("b");
  idle->numerics = "other";
  idle->SayState();
  PuppetLink* equal = AddWorker("c");
  equal->sequences = 5;
  equal->SayState();
  Client client;
  Begin(&client, request);
  loop_.RunUntil([&] { return !idle->prepares.empty() || !equal->prepares.empty(); });
  ASSERT_EQ(equal->prepares.size(), 1);
  equal->AnswerPrepare({1, 2});
  loop_.RunAll();
  ASSERT_EQ(equal->runs.size(), 1);
  LastRun(equal).Say({13}, v1::STOP);
  loop_.RunUntil([&] { return Log().info.token_count == 6; });
  TakeAll(&client);
  EXPECT_FALSE(client.messages.back().usage().numerics_changed());
  EXPECT_EQ(Log().turns[0].numerics_id, "n");
}

TEST_F(LoggedTurnTest, ATurnReportsThatItsNumericsChanged) {
  const v1::GenerateRequest request = Leave(v1::FINISH_REASON_UNSPECIFIED);
  const auto changes = [this] {
    std::optional<int64_t> count;
    core_->stats()->Get({}, [&count](absl::StatusOr<v1::GetStatsResponse> stats) {
      count = stats->front().numerics_changed_total();
    });
    loop_.RunUntil([&] { return count.has_value(); });
    return *count;
  };
  PuppetLink* worker = AddWorker("b");
  worker->numerics = "other";
  worker->SayState();
  EXPECT_EQ(changes(), 0);
  Client client;
  Begin(&client, request);
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1, 2});
  loop_.RunAll();
  LastRun(worker).Say({13});
  LastRun(worker).Say({14}, v1::STOP);
  loop_.RunUntil([&] { return Log().info.token_count == 7; });
  TakeAll(&client);
  EXPECT_TRUE(client.messages.back().usage().numerics_changed());
  EXPECT_EQ(changes(), 1);
  EXPECT_EQ(Log().turns[0].numerics_id, kSeveralNumerics);
  // The log says that the numerics_id has changed, so another front reports this, too.
  StartAnotherFront();
  Client again;
  Return(&again, request);
  TakeAll(&again);
  EXPECT_EQ(again.tokens, (Tokens{10, 11, 12, 13, 14}));
  EXPECT_TRUE(again.messages.back().usage().numerics_changed());
  EXPECT_EQ(changes(), 0);
}

// A worker of another release, or on another date, may render the request differently. It is still
// the same request.
TEST_F(LoggedTurnTest, ATurnContinuesAfterThePromptOfItsLog) {
  v1::GenerateRequest request = Leave(v1::FINISH_REASON_UNSPECIFIED);
  Client client;
  PuppetLink* worker = Return(&client, request, {1, 3, 3});
  ASSERT_EQ(worker->runs.size(), 1);
  const worker::v1::Start& start = LastRun(worker).start;
  EXPECT_EQ(Tokens(start.prepared().token_ids().begin(), start.prepared().token_ids().end()),
            (Tokens{1, 2}));
  EXPECT_EQ(start.prompt_length(), 2);
  EXPECT_EQ(start.prepared().stopping().max_tokens(), 2046);
  EXPECT_EQ(client.tokens, (Tokens{10, 11, 12}));
  LastRun(worker).Say({13}, v1::STOP);
  loop_.RunUntil([&] { return !Log().info.busy; });
  EXPECT_EQ(Log().token_ids, (Tokens{1, 2, 10, 11, 12, 13}));
}

TEST_F(LoggedTurnTest, AnotherPromptIsNotTheTurnThatAnOlderProgramLogged) {
  const v1::GenerateRequest request = Leave(v1::STOP);
  SessionLogData log = Log();
  ASSERT_FALSE(log.turns[0].body_digest.empty());
  log.turns[0].body_digest.clear();
  store_->Replace(log, [](const absl::StatusOr<SessionInfo>& info) { EXPECT_TRUE(info.ok()); });
  Client same, client;
  Return(&same, request);
  TakeAll(&same);
  EXPECT_EQ(same.tokens, (Tokens{10, 11, 12}));
  loop_.RunUntil([&] { return !Log().info.busy; });
  StartAnotherFront();
  Return(&client, request, {1, 3});
  ASSERT_TRUE(client.status.has_value());
  EXPECT_EQ(client.status->code(), StatusCode::kAlreadyExists) << *client.status;
}

TEST_F(LoggedTurnTest, AnInterruptedTurnBeforeOthersIsNotReturnedAgain) {
  v1::GenerateRequest request = Leave(v1::FINISH_REASON_UNSPECIFIED);
  clock_.Advance(absl::Seconds(11));  // the lease has expired
  v1::GenerateRequest next = request;
  next.set_request_id("next");
  Client other;
  PuppetLink* worker = Return(&other, next, {1, 2, 10, 11, 12, 3});
  LastRun(worker).Say({14}, v1::STOP);
  loop_.RunUntil([&] { return Log().turns.size() == 2; });
  Client client;
  Begin(&client, request);
  loop_.RunUntil([&] { return client.status.has_value(); });
  EXPECT_EQ(client.status->code(), StatusCode::kFailedPrecondition) << *client.status;
}

TEST_F(LoggedTurnTest, TheTextOfACutResponseIsRequestedForItsPrincipal) {
  PuppetLink* worker = AddWorker("a");
  v1::GenerateRequest request = SessionTurn();
  v1::ChatMessage* question = request.mutable_chat()->add_messages();
  question->set_role("user");
  question->set_content("Why?");
  Client client;
  Begin(&client, request);
  loop_.RunUntil([&] { return !worker->prepares.empty(); });
  worker->AnswerPrepare({1, 2});
  LastRun(worker).Say({10, 11});
  LastRun(worker).Say({12}, v1::STOP);
  loop_.RunUntil([&] { return Log().info.token_count == 5; });
  TakeAll(&client);
  loop_.RunUntil([&] { return !Log().info.busy; });
  v1::TruncateSessionRequest cut;
  cut.set_session_id("s");
  cut.set_position(3);
  std::optional<absl::StatusOr<v1::Session>> done;
  core_->sessions()->Truncate(cut, "", [&](absl::StatusOr<v1::Session> session) {
    loop_.Post([&done, session] { done = session; });
  });
  loop_.RunUntil([&] { return done.has_value(); });
  ASSERT_TRUE(done->ok()) << done->status();
  EXPECT_EQ((*done)->token_count(), 3);
  EXPECT_EQ(Log().turns[0].response, "t10 ");
  EXPECT_EQ(worker->texts_for, std::vector<std::string>{""});
}

}  // namespace
}  // namespace tidepool::service
