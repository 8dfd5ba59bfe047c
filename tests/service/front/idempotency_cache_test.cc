// Requests with a request_id from the client: they are repeated, and resumed by several readers.
#include "service/front/idempotency_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "tests/service/front/idempotency_cache_fixture.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;
using Tokens = std::vector<int32_t>;

TEST_F(IdempotencyCacheTest, AFinishedResponseIsReadAgainFromAnywhere) {
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

TEST_F(IdempotencyCacheTest, OneResponseHasAFewReadersAtATime) {
  PuppetLink* worker = AddWorker("a");
  std::vector<std::unique_ptr<Client>> readers;
  for (size_t i = 0; i < IdempotencyCache::kMaxReaders; ++i) {
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

TEST_F(IdempotencyCacheTest, AClientThatComesBackReadsOnAsIfNothingHadHappened) {
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
  // The generation continues until its credit is used. Without a reader, it gets no more credit.
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

TEST_F(IdempotencyCacheTest, AnOrphanIsCancelledWhenItsTimeIsOver) {
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
  // If the client returns later, the response is generated again. One of its messages ends where
  // the client resumes.
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

TEST_F(IdempotencyCacheTest, WithoutARequestIdTheWorkEndsWithItsClient) {
  PuppetLink* worker = AddWorker("a");
  Client client;
  Begin(&client, Text());
  worker->AnswerPrepare({1, 2});
  LastRun(worker).Say({10});
  client.generation->Cancel(absl::CancelledError("gone"));
  EXPECT_TRUE(LastRun(worker).gone);
}

TEST_F(IdempotencyCacheTest, AnotherBodyIsRefused) {
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
  // The response is kept for this time, and not longer.
  loop_.Advance(absl::Minutes(10) + absl::Seconds(1));
  Client later;
  Begin(&later, longer);
  EXPECT_FALSE(later.status.has_value());
  EXPECT_EQ(worker->prepares.size(), 2);
}

TEST_F(IdempotencyCacheTest, AFailedRequestMayBeTriedAgain) {
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

TEST_F(IdempotencyCacheTest, TheSeedFollowsFromTheName) {
  PuppetLink* worker = AddWorker("a");
  std::vector<uint64_t> seeds;
  for (const char* id : {"one", "two", "one"}) {
    v1::GenerateRequest request = Text();
    request.set_request_id(id);
    Client client;
    Begin(&client, request);
    seeds.push_back(worker->prepares.back().first.request().sampling().seed());
    client.generation->Cancel(absl::CancelledError("gone"));
    loop_.Advance(absl::Seconds(31));  // longer than the orphan TTL
  }
  EXPECT_EQ(seeds[0], seeds[2]);
  EXPECT_NE(seeds[0], seeds[1]);
}

TEST_F(IdempotencyCacheTest, ResumingAfterTheEndIsRefused) {
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

TEST_F(IdempotencyCacheTest, TwoClientsReadOneResponse) {
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

// Every reader gets a status that allows a retry: readers of running responses, readers of finished
// ones, and readers that come at the last moment.
TEST_F(IdempotencyCacheTest, AFrontThatClosesEndsEveryReaderWithItsReason) {
  PuppetLink* worker = AddWorker("a");
  const auto named = [](const std::string& id) {
    v1::GenerateRequest request = Text();
    request.set_request_id(id);
    return request;
  };
  Client whole, slow, live, late, unnamed;
  Begin(&whole, named("whole"));
  worker->AnswerPrepare({1, 2});
  LastRun(worker).Say({10}, v1::STOP);
  TakeAll(&whole);
  ASSERT_TRUE(whole.status.has_value() && whole.status->ok());
  Begin(&slow, named("whole"));
  ASSERT_TRUE(slow.writing);
  Begin(&live, named("live"));
  worker->AnswerPrepare({1, 2});
  LastRun(worker).Say({10});

  const absl::Status leaving = absl::UnavailableError("the server is shutting down");
  core_->CloseGenerations(leaving);
  loop_.RunAll();
  EXPECT_TRUE(LastRun(worker).gone);
  for (Client* client : {&slow, &live}) {
    ASSERT_TRUE(client->status.has_value());
    EXPECT_EQ(*client->status, leaving);
  }
  Begin(&late, named("whole"));
  Begin(&unnamed, Text());
  for (Client* client : {&late, &unnamed}) {
    ASSERT_TRUE(client->status.has_value());
    EXPECT_EQ(*client->status, leaving);
  }
  EXPECT_EQ(worker->prepares.size(), 2);
}

class LongResponseTest : public IdempotencyCacheTest {
 protected:
  static constexpr int kMessages = 20;

  // Each message is a little larger than 1 MiB. So the number of kept messages is one less than the
  // limit in MiB.
  static constexpr int kKept = (NamedRequest::kMaxBytes >> 20) - 1;

  // `reader` begins the request and receives all messages.
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

TEST_F(LongResponseTest, ItsNewestMessagesAreKept) {
  Client reader;
  PuppetLink* worker = Make(&reader);
  SayAll(worker, &reader);
  Client back;
  Begin(&back, Named(Text(), kMessages - kKept));
  TakeAll(&back);
  EXPECT_EQ(back.tokens.size(), kKept);
  EXPECT_EQ(back.tokens.back(), kMessages - 1);
  EXPECT_EQ(worker->prepares.size(), 1);

  // A client that needs earlier messages is refused. Otherwise the response would be generated
  // again, which would end the streams of the other readers.
  Client early;
  Begin(&early, Named(Text(), kMessages - kKept - 1));
  ASSERT_TRUE(early.status.has_value());
  EXPECT_EQ(early.status->code(), StatusCode::kFailedPrecondition) << *early.status;
  EXPECT_FALSE(reader.status.has_value()) << *reader.status;
  EXPECT_EQ(worker->prepares.size(), 1);
  // If there are no other readers, the response is generated again. One of its messages ends where
  // this client resumes.
  for (Client* gone : {&reader, &back}) gone->generation->Cancel(absl::CancelledError("gone"));
  Client late;
  Begin(&late, Named(Text(), kMessages - kKept - 1));
  ASSERT_EQ(worker->prepares.size(), 2);
  worker->AnswerPrepare({1, 2});
  EXPECT_EQ(LastRun(worker).credit, kMessages - kKept - 1);
}

TEST_F(LongResponseTest, AReaderThatIsTooSlowIsAborted) {
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

}  // namespace
}  // namespace tidepool::service
