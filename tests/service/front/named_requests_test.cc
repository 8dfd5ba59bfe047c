// Requests that their clients gave a request_id: read again, read on, by whomever comes.
#include "service/front/named_requests.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/service/front/front_fixture.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;
using Tokens = std::vector<int32_t>;

class NamedRequestsTest : public FrontTest {
 protected:
  static v1::GenerateRequest Named(v1::GenerateRequest request = Text(),
                                   std::optional<uint64_t> resume_after = std::nullopt) {
    request.set_request_id("mine");
    if (resume_after.has_value()) request.set_resume_after(*resume_after);
    return request;
  }

  // The client takes message after message, as far as there are any.
  void TakeAll(Client* client) {
    loop_.RunAll();
    while (client->writing) {
      client->Take();
      loop_.RunAll();
    }
  }

  static std::string TextOf(const Client& client) {
    std::string text;
    for (const auto& message : client.messages) text += message.text();
    return text;
  }

  // The worker's last run.
  static PuppetLink::Run_& LastRun(PuppetLink* worker) { return *worker->runs.back(); }
};

TEST_F(NamedRequestsTest, AFinishedAnswerIsReadAgainFromAnywhere) {
  PuppetLink* worker = AddWorker("a");
  Client first;
  Begin(&first, Named());
  worker->AnswerPrepare({1, 2});
  for (const int32_t token : {10, 11, 12}) {
    LastRun(worker).Say({token});
    TakeAll(&first);
  }
  LastRun(worker).Say({13}, v1::LENGTH);
  TakeAll(&first);
  ASSERT_TRUE(first.status.has_value() && first.status->ok());
  for (uint64_t after = 0; after <= 4; ++after) {
    Client again;
    Begin(&again, Named(Text(), after));
    TakeAll(&again);
    ASSERT_TRUE(again.status.has_value() && again.status->ok()) << after;
    const Tokens all = {10, 11, 12, 13};
    EXPECT_EQ(again.tokens, Tokens(all.begin() + after, all.end()));
    EXPECT_EQ(again.messages.front().position(), after);
    EXPECT_EQ(again.messages.back().finish_reason(), v1::LENGTH);
    std::string text;
    for (size_t i = after; i < all.size(); ++i) absl::StrAppend(&text, "t", all[i], " ");
    EXPECT_EQ(TextOf(again), text);
  }
  EXPECT_EQ(worker->runs.size(), 1);
  EXPECT_EQ(worker->prepares.size(), 1);
}

TEST_F(NamedRequestsTest, OneAnswerHasAFewReadersAtATime) {
  PuppetLink* worker = AddWorker("a");
  std::vector<std::unique_ptr<Client>> readers;
  for (size_t i = 0; i < NamedRequests::kMostReaders; ++i) {
    Begin(readers.emplace_back(std::make_unique<Client>()).get(), Named());
  }
  Client one_more;
  Begin(&one_more, Named());
  ASSERT_TRUE(one_more.status.has_value());
  EXPECT_EQ(one_more.status->code(), StatusCode::kResourceExhausted) << *one_more.status;

  readers.pop_back();
  loop_.RunAll();
  Client in_its_place;
  Begin(&in_its_place, Named());
  EXPECT_FALSE(in_its_place.status.has_value());
  worker->AnswerPrepare({1, 2});
  LastRun(worker).Say({10}, v1::LENGTH);
  TakeAll(&in_its_place);
  EXPECT_EQ(in_its_place.tokens, Tokens{10});
  EXPECT_EQ(worker->prepares.size(), 1);
}

TEST_F(NamedRequestsTest, AClientThatComesBackReadsOnAsIfNothingHadHappened) {
  PuppetLink* worker = AddWorker("a");
  Client first;
  Begin(&first, Named());
  worker->AnswerPrepare({1, 2});
  LastRun(worker).Say({10, 11});
  TakeAll(&first);
  LastRun(worker).Say({12});
  loop_.RunAll();
  first.generation->Cancel(absl::CancelledError("gone"));
  EXPECT_EQ(first.status->code(), StatusCode::kCancelled);
  EXPECT_FALSE(LastRun(worker).gone);
  // It goes on within its window, which nobody moves.
  LastRun(worker).Say({13});
  EXPECT_EQ(LastRun(worker).credit, 258);
  loop_.Advance(absl::Seconds(29));
  EXPECT_FALSE(LastRun(worker).gone);
  Client second;
  Begin(&second, Named(Text(), 2));
  TakeAll(&second);
  EXPECT_EQ(second.tokens, (Tokens{12, 13}));
  EXPECT_EQ(LastRun(worker).credit, 260);
  loop_.Advance(absl::Seconds(29));
  LastRun(worker).Say({14}, v1::STOP);
  TakeAll(&second);
  EXPECT_EQ(second.tokens, (Tokens{12, 13, 14}));
  EXPECT_EQ(TextOf(second), "t12 t13 t14 ");
  EXPECT_TRUE(second.status->ok());
  EXPECT_EQ(worker->runs.size(), 1);
}

TEST_F(NamedRequestsTest, AnOrphanIsCancelledWhenItsTimeIsOver) {
  PuppetLink* worker = AddWorker("a");
  Client first;
  Begin(&first, Named());
  worker->AnswerPrepare({1, 2});
  LastRun(worker).Say({10});
  TakeAll(&first);
  first.generation->Cancel(absl::CancelledError("gone"));
  loop_.Advance(absl::Seconds(29));
  EXPECT_FALSE(LastRun(worker).gone);
  loop_.Advance(absl::Seconds(2));
  EXPECT_TRUE(LastRun(worker).gone);
  // Coming back all the same it is made anew, up to a message's end where it resumes.
  Client late;
  Begin(&late, Named(Text(), 1));
  ASSERT_EQ(worker->prepares.size(), 2);
  worker->AnswerPrepare({1, 2});
  EXPECT_EQ(LastRun(worker).credit, 1);
  LastRun(worker).Say({10});
  loop_.RunAll();
  EXPECT_EQ(LastRun(worker).credit, 257);
  EXPECT_TRUE(late.messages.empty());
  LastRun(worker).Say({11}, v1::STOP);
  TakeAll(&late);
  EXPECT_EQ(late.tokens, Tokens{11});
  EXPECT_EQ(TextOf(late), "t11 ");
}

TEST_F(NamedRequestsTest, WithoutARequestIdTheWorkEndsWithItsClient) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Text());
  worker->AnswerPrepare({1, 2});
  LastRun(worker).Say({10});
  client.generation->Cancel(absl::CancelledError("gone"));
  EXPECT_TRUE(LastRun(worker).gone);
}

TEST_F(NamedRequestsTest, AnotherBodyIsRefused) {
  PuppetLink* worker = AddWorker("a");
  Client first;
  Begin(&first, Named());
  worker->AnswerPrepare({1, 2});
  v1::GenerateRequest hotter = Named();
  hotter.mutable_sampling()->set_temperature(0.5);
  v1::GenerateRequest longer = Named();
  longer.set_text("hello there");
  const auto refused = [this](const v1::GenerateRequest& request) {
    Client client;
    Begin(&client, request);
    return client.status.has_value() && client.status->code() == StatusCode::kAlreadyExists;
  };
  for (const auto& request : {hotter, longer}) EXPECT_TRUE(refused(request));
  LastRun(worker).Say({10}, v1::STOP);
  TakeAll(&first);
  for (const auto& request : {hotter, longer}) EXPECT_TRUE(refused(request));
  // Kept for so long, and no longer.
  loop_.Advance(absl::Minutes(10) + absl::Seconds(1));
  Client later;
  Begin(&later, longer);
  EXPECT_FALSE(later.status.has_value());
  EXPECT_EQ(worker->prepares.size(), 2);
}

TEST_F(NamedRequestsTest, AFailedRequestMayBeTriedAgain) {
  PuppetLink* worker = AddWorker("a");
  Client first;
  Begin(&first, Named());
  worker->prepares.back().second(absl::ResourceExhaustedError("full"));
  loop_.RunAll();
  EXPECT_EQ(first.status->code(), StatusCode::kResourceExhausted);
  Client second;
  Begin(&second, Named());
  EXPECT_FALSE(second.status.has_value());
  EXPECT_EQ(worker->prepares.size(), 2);
}

TEST_F(NamedRequestsTest, TheSeedFollowsFromTheName) {
  PuppetLink* worker = AddWorker("a");
  std::vector<uint64_t> seeds;
  for (const char* id : {"one", "two", "one"}) {
    v1::GenerateRequest request = Text();
    request.set_request_id(id);
    Client client;
    Begin(&client, request);
    seeds.push_back(worker->prepares.back().first.request().sampling().seed());
    core_->CancelAll(absl::CancelledError("next"));
    loop_.RunAll();
  }
  EXPECT_EQ(seeds[0], seeds[2]);
  EXPECT_NE(seeds[0], seeds[1]);
}

TEST_F(NamedRequestsTest, ResumingBehindTheEndIsRefused) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Named(Text(), 9));
  worker->AnswerPrepare({1, 2});
  EXPECT_EQ(LastRun(worker).credit, 9);
  LastRun(worker).Say({10, 11}, v1::STOP);
  TakeAll(&client);
  EXPECT_EQ(client.status->code(), StatusCode::kInvalidArgument) << *client.status;
  EXPECT_TRUE(absl::StrContains(client.status->message(), "resume_after is 9"));
}

TEST_F(NamedRequestsTest, TwoClientsReadOneAnswer) {
  PuppetLink* worker = AddWorker("a");
  Client slow;
  Begin(&slow, Named());
  worker->AnswerPrepare({1, 2});
  Client quick;
  Begin(&quick, Named());
  LastRun(worker).Say({10});
  loop_.RunAll();
  EXPECT_EQ(slow.tokens, Tokens{10});
  TakeAll(&quick);
  LastRun(worker).Say({11}, v1::STOP);
  TakeAll(&quick);
  EXPECT_EQ(quick.tokens, (Tokens{10, 11}));
  EXPECT_TRUE(quick.status->ok());
  EXPECT_FALSE(slow.status.has_value());
  TakeAll(&slow);
  EXPECT_EQ(slow.tokens, (Tokens{10, 11}));
  EXPECT_TRUE(slow.status->ok());
}

class LongAnswerTest : public NamedRequestsTest {
 protected:
  static constexpr int kMessages = 20;

  // Each is a mebibyte and a little more, so that one less than the limit has fits into it.
  static constexpr int kKept = (NamedRequest::kMostBytes >> 20) - 1;

  // `reader` begins the request and takes them all.
  PuppetLink* Make(Client* reader) {
    PuppetLink* worker = AddWorker("a");
    Begin(reader, Named());
    worker->AnswerPrepare({1, 2});
    return worker;
  }
  void SayAll(PuppetLink* worker, Client* reader) {
    for (int i = 0; i < kMessages; ++i) {
      LastRun(worker).SayLong(i, 1 << 20);
      TakeAll(reader);
    }
  }
};

TEST_F(LongAnswerTest, ItsNewestMessagesAreKept) {
  Client reader;
  PuppetLink* worker = Make(&reader);
  SayAll(worker, &reader);
  Client back;
  Begin(&back, Named(Text(), kMessages - kKept));
  TakeAll(&back);
  EXPECT_EQ(back.tokens.size(), kKept);
  EXPECT_EQ(back.tokens.back(), kMessages - 1);
  EXPECT_EQ(worker->prepares.size(), 1);

  // Who wants more gets the answer made once more, up to where a message ends here.
  Client late;
  Begin(&late, Named(Text(), kMessages - kKept - 1));
  EXPECT_EQ(reader.status->code(), StatusCode::kAborted) << *reader.status;
  ASSERT_EQ(worker->prepares.size(), 2);
  worker->AnswerPrepare({1, 2});
  EXPECT_EQ(LastRun(worker).credit, kMessages - kKept - 1);
}

TEST_F(LongAnswerTest, AReaderThatFallsFarBehindIsSentBack) {
  Client slow, quick;
  PuppetLink* worker = Make(&quick);
  Begin(&slow, Named());
  SayAll(worker, &quick);
  EXPECT_EQ(quick.tokens.size(), kMessages);
  EXPECT_FALSE(slow.status.has_value());
  TakeAll(&slow);
  ASSERT_TRUE(slow.status.has_value());
  EXPECT_EQ(slow.status->code(), StatusCode::kAborted) << *slow.status;
  EXPECT_EQ(slow.tokens, Tokens{0});

  Client new_one;
  Begin(&new_one, Named(Text(), kMessages));
  LastRun(worker).Say({99}, v1::STOP);
  TakeAll(&quick);
  TakeAll(&new_one);
  EXPECT_EQ(new_one.tokens, Tokens{99});
  EXPECT_TRUE(new_one.status->ok());
  EXPECT_TRUE(quick.status->ok());
}

// Another front, or this one after it died: the session's log is all that is left.
class LoggedTurnTest : public NamedRequestsTest {
 protected:
  void StartAnotherFront() {
    core_ = nullptr;
    core_ = std::make_unique<FrontCore>(&loop_, &clock_, store_.get(),
                                        [](LogLevel, absl::string_view) {});
  }

  // A turn of which {10, 11, 12} and perhaps an end are in the log.
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

// A space where the answer begins belongs to its first token: whoever has none gets it.
TEST_F(LoggedTurnTest, AnAnswersLeadingSpaceComesOnce) {
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

TEST_F(LoggedTurnTest, ATurnGoesOnWhereItsLogEnds) {
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
  EXPECT_EQ(log.turns[0].answer, "t10 t11 t12 t13 ");
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

// A client's mistake at one front is no harm to the stream at another.
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

// What the log does not keep may be asked for or not.
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

TEST_F(LoggedTurnTest, ATurnGoesOnWhereItsArithmeticIs) {
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

TEST_F(LoggedTurnTest, ATurnThatGoesOnInOtherArithmeticSaysSo) {
  const v1::GenerateRequest request = Leave(v1::FINISH_REASON_UNSPECIFIED);
  const auto changes = [this] {
    std::optional<int64_t> count;
    core_->GetStats({}, [&count](absl::StatusOr<v1::GetStatsResponse> stats) {
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
  // And so does the log, to whom it is given again.
  StartAnotherFront();
  Client again;
  Return(&again, request);
  TakeAll(&again);
  EXPECT_EQ(again.tokens, (Tokens{10, 11, 12, 13, 14}));
  EXPECT_TRUE(again.messages.back().usage().numerics_changed());
  EXPECT_EQ(changes(), 0);
}

TEST_F(LoggedTurnTest, AnotherPromptIsNotItsTurn) {
  const v1::GenerateRequest request = Leave(v1::STOP);
  Client client;
  Return(&client, request, {1, 3});
  EXPECT_EQ(client.status->code(), StatusCode::kAlreadyExists) << *client.status;
}

TEST_F(LoggedTurnTest, ATurnThatWasCutShortUnderOthersIsNotGivenAgain) {
  v1::GenerateRequest request = Leave(v1::FINISH_REASON_UNSPECIFIED);
  clock_.Advance(absl::Seconds(11));  // past its lease
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

}  // namespace
}  // namespace tidepool::service
