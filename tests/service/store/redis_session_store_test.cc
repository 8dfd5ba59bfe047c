// What only the Redis store does. session_store_test.cc tests the contract of all stores.
#include "service/store/redis_session_store.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "tests/fakes/manual_clock.h"
#include "tests/service/store/redis_server.h"
#include "tests/service/store/store_calls.h"

namespace tidepool::service {
namespace {

using absl::StatusCode;

RedisSessionStoreOptions OptionsFor(const RedisServer& server) {
  RedisSessionStoreOptions options;
  options.address = server.address();
  return options;
}

std::unique_ptr<SessionStore> Open(const RedisServer& server) {
  auto store = RedisSessionStore::Open(OptionsFor(server));
  EXPECT_TRUE(store.ok()) << store.status();
  return store.ok() ? *std::move(store) : nullptr;
}

AppendRequest OneToken(int64_t epoch, int64_t length, int32_t token) {
  return {.session_id = "s",
          .epoch = epoch,
          .expected_length = length,
          .output_ids = {token},
          .output_text = "x"};
}

TEST(RedisSessionStoreTest, RefusesServersThatForget) {
  struct Case {
    RedisServer::Settings settings;
    RedisSafety safety;
    std::string names;  // what the error must name; empty: the server is accepted
  };
  const Case cases[] = {
      {{{"appendonly", "no"}}, RedisSafety::kProcess, "appendonly"},
      {{{"appendonly", "no"}}, RedisSafety::kUnchecked, ""},
      {{{"appendfsync", "no"}}, RedisSafety::kProcess, "appendfsync"},
      {{{"appendfsync", "everysec"}}, RedisSafety::kPower, "appendfsync"},
      {{{"appendfsync", "always"}}, RedisSafety::kPower, ""},
      {{{"maxmemory", "100mb"}, {"maxmemory-policy", "allkeys-lru"}},
       RedisSafety::kProcess,
       "maxmemory-policy"},
      {{{"maxmemory", "100mb"}, {"maxmemory-policy", "noeviction"}}, RedisSafety::kProcess, ""},
      {{{"cluster-enabled", "yes"}}, RedisSafety::kUnchecked, "cluster"},
  };
  for (const Case& one : cases) {
    const RedisServer server(one.settings);
    RedisSessionStoreOptions options = OptionsFor(server);
    options.safety = one.safety;
    const auto store = RedisSessionStore::Open(options);
    if (one.names.empty()) {
      EXPECT_TRUE(store.ok()) << store.status();
      continue;
    }
    EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition) << one.names;
    EXPECT_TRUE(absl::StrContains(store.status().message(), one.names)) << store.status();
    EXPECT_EQ(absl::StrContains(store.status().message(), "--store-unsafe"),
              one.safety != RedisSafety::kUnchecked)
        << store.status();
  }
}

TEST(RedisSessionStoreTest, RefusesServersThatHideTheirSettings) {
  RedisServer server;
  server.Ask({"ACL", "SETUSER", "default", "-config"});
  RedisSessionStoreOptions options = OptionsFor(server);
  const auto store = RedisSessionStore::Open(options);
  EXPECT_EQ(store.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(store.status().message(), "CONFIG GET")) << store.status();
  options.safety = RedisSafety::kUnchecked;
  EXPECT_TRUE(RedisSessionStore::Open(options).ok());
}

TEST(RedisSessionStoreTest, PasswordsOpenAndAreNeverShown) {
  RedisServer server;
  server.Ask({"CONFIG", "SET", "requirepass", "tide-secret"});
  const auto without = RedisSessionStore::Open(OptionsFor(server));
  EXPECT_EQ(without.status().code(), StatusCode::kFailedPrecondition) << without.status();
  RedisSessionStoreOptions options = OptionsFor(server);
  options.address.password = "wrong-secret";
  const auto wrong = RedisSessionStore::Open(options);
  EXPECT_EQ(wrong.status().code(), StatusCode::kFailedPrecondition) << wrong.status();
  EXPECT_FALSE(absl::StrContains(wrong.status().message(), "secret")) << wrong.status();
  options.address.password = "tide-secret";
  options.address.database = 3;
  const auto right = RedisSessionStore::Open(options);
  ASSERT_TRUE(right.ok()) << right.status();
  EXPECT_TRUE(Create(**right, "s").ok());
}

// The session of a turn has vanished. The error must not ask the client to retry, because the
// session does not come back.
TEST(RedisSessionStoreTest, AServerThatWasEmptiedUnderATurnHasLostData) {
  RedisServer server;
  auto store = Open(server);
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  server.Ask({"FLUSHALL"});
  const absl::Status lost = Append(*store, OneToken(turn->epoch, 4, 11));
  EXPECT_EQ(lost.code(), StatusCode::kDataLoss) << lost;
  EXPECT_TRUE(absl::StrContains(lost.message(), "session 's' disappeared")) << lost;

  // This turn's front was silent for too long, and its session was deleted. So it has only lost its
  // lease.
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto slow = Begin(*store, "s", "r1");
  ASSERT_TRUE(Renew(*store, "s", slow->epoch, absl::ZeroDuration()).ok());
  ASSERT_TRUE(Delete(*store, "s").ok());
  EXPECT_EQ(Append(*store, FirstAppend(slow->epoch)).code(), StatusCode::kAborted);
}

TEST(RedisSessionStoreTest, ReportsAnUnreachableServerWithoutACall) {
  RedisServer server;
  auto store = Open(server);
  HealthWatch health(store.get());
  EXPECT_TRUE(health.Await(StatusCode::kOk).ok());
  server.Kill();
  const absl::Status away = health.Await(StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(away.message(), "is unavailable")) << away;
  server.Start();
  EXPECT_TRUE(health.Await(StatusCode::kOk).ok());
  EXPECT_TRUE(Create(*store, "s").ok());
}

TEST(RedisSessionStoreTest, RefusesNewerLayoutsAndReplicas) {
  RedisServer server;
  server.Ask({"SET", "tidepool:schema", "2"});
  const auto newer = RedisSessionStore::Open(OptionsFor(server));
  EXPECT_EQ(newer.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(absl::StrContains(newer.status().message(), "newer program")) << newer.status();
  const RedisServer other;
  server.Ask({"REPLICAOF", "127.0.0.1", absl::StrCat(other.address().port)});
  const auto replica = RedisSessionStore::Open(OptionsFor(server));
  EXPECT_TRUE(absl::StrContains(replica.status().message(), "slave")) << replica.status();
}

// There are two fronts. Only the one with the newer epoch writes, and every acknowledged token is
// in the log.
TEST(RedisSessionStoreTest, TwoStoresRaceForOneSession) {
  const RedisServer server;
  auto one = Open(server);
  auto two = Open(server);
  ASSERT_TRUE(Create(*one, "s").ok());
  EXPECT_EQ(Create(*two, "s").status().code(), StatusCode::kAlreadyExists);
  std::atomic<int> turns = 0;
  base::Mutex mutex;
  std::vector<int32_t> logged;  // what the holders of the lease have written, in order
  const auto play = [&](SessionStore& store, const std::string& name) {
    for (int i = 0; i < 30;) {
      const auto turn = Begin(store, "s", absl::StrCat(name, i));
      if (!turn.ok()) {
        ASSERT_EQ(turn.status().code(), StatusCode::kAborted) << turn.status();
        continue;
      }
      // The lease already is the lock. This mutex only shows it to the sanitizers.
      base::MutexLock lock(&mutex);
      ASSERT_EQ(turn->log.token_ids, logged);
      AppendRequest append = FirstAppend(turn->epoch);
      append.expected_length = append.begin->kept = static_cast<int64_t>(logged.size());
      append.begin->request_id = absl::StrCat(name, i);
      append.output_ids = {1000 + turns++};
      append.finish = TurnFinish::kStop;
      logged.insert(logged.end(), {1, 2, 3, append.output_ids[0]});
      ASSERT_TRUE(Append(store, append).ok());
      ++i;
    }
  };
  std::thread first([&] { play(*one, "a"); });
  std::thread second([&] { play(*two, "b"); });
  first.join();
  second.join();
  const auto log = Get(*one, "s");
  ASSERT_TRUE(log.ok()) << log.status();
  EXPECT_EQ(log->info.turn_count, 60);
  EXPECT_EQ(log->token_ids, logged);
  EXPECT_EQ(log->turns, Get(*two, "s")->turns);
}

TEST(RedisSessionStoreTest, AFrontThatLostItsLeaseIsFenced) {
  const RedisServer server;
  auto one = Open(server);
  auto two = Open(server);
  ASSERT_TRUE(Create(*one, "s").ok());
  const auto stale = Begin(*one, "s", "r1");
  ASSERT_TRUE(Append(*one, FirstAppend(stale->epoch)).ok());
  // The client sends the same request to the other front.
  const auto fresh = Begin(*two, "s", "r1");
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  EXPECT_EQ(Append(*one, OneToken(stale->epoch, 4, 7)).code(), StatusCode::kAborted);
  EXPECT_EQ(Renew(*one, "s", stale->epoch, absl::Seconds(10)).code(), StatusCode::kAborted);
  EXPECT_EQ(Get(*two, "s")->token_ids, (std::vector<int32_t>{1, 2, 3, 10}));
}

TEST(RedisSessionStoreTest, CallsAreUnavailableWhileTheServerIsUnreachable) {
  RedisServer server;
  RedisSessionStoreOptions options = OptionsFor(server);
  options.patience = absl::Milliseconds(300);
  auto store = *RedisSessionStore::Open(options);
  ASSERT_TRUE(Create(*store, "s").ok());
  server.Kill();
  const auto lost = Create(*store, "t");
  EXPECT_EQ(lost.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(lost.status().message(), server.address().Name())) << lost.status();
  server.Start();
  // After the back-off, the store finds the server again. What was acknowledged is still there.
  absl::StatusOr<SessionLogData> log = Get(*store, "s");
  while (absl::IsUnavailable(log.status())) log = Get(*store, "s");
  EXPECT_TRUE(log.ok()) << log.status();
}

TEST(RedisSessionStoreTest, AServerThatWasAwayForLongIsFoundSoon) {
  RedisServer server;
  fakes::ManualClock clock;
  RedisSessionStoreOptions options = OptionsFor(server);
  options.clock = &clock;
  options.patience = absl::Milliseconds(650);
  auto store = *RedisSessionStore::Open(options);
  ASSERT_TRUE(Create(*store, "s").ok());
  server.Kill();
  for (int round = 0; round < 6; ++round) {
    Answer<SessionLogData> refused;
    store->Get("ann", "s", refused.Taker());
    clock.Advance(absl::Seconds(5));
    EXPECT_EQ(refused.Get().status().code(), StatusCode::kUnavailable);
  }
  server.Start();
  Answer<SessionLogData> log;
  store->Get("ann", "s", log.Taker());
  // Wait for the longest back-off, with its random part, and then until the patience of the call
  // ends.
  clock.Advance(absl::Milliseconds(601));
  clock.Advance(absl::Milliseconds(49));
  const auto found = log.Get();
  EXPECT_TRUE(found.ok()) << found.status();
}

// The server dies repeatedly during appends. In the end, each append is in the log once, in order.
TEST(RedisSessionStoreTest, AppendsSurviveTheServersDeath) {
  RedisServer server(RedisServer::Settings{{"appendfsync", "always"}});
  auto store = Open(server);
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  int64_t length = 4;
  for (int round = 0; round < 5; ++round) {
    constexpr int kAppends = 400;
    std::vector<StatusAnswer> answers(kAppends);
    for (int i = 0; i < kAppends; ++i) {
      store->Append(OneToken(turn->epoch, length + i, static_cast<int32_t>(length + i)),
                    answers[i].Taker());
      if (i == 100 + 50 * round) server.Kill();
    }
    server.Start();
    for (StatusAnswer& answer : answers) {
      const absl::Status status = answer.Get();
      ASSERT_TRUE(status.ok()) << status;
    }
    length += kAppends;
  }
  const auto log = Get(*store, "s");
  ASSERT_TRUE(log.ok()) << log.status();
  ASSERT_EQ(log->info.token_count, length);
  for (int64_t i = 4; i < length; ++i) ASSERT_EQ(log->token_ids[i], i);
  EXPECT_EQ(log->turns[0].response, "a" + std::string(length - 4, 'x'));
}

// The server stops after it has run a call and before it has responded. The call is sent again, but
// has no second effect.
TEST(RedisSessionStoreTest, ALostReplyIsFoundByReadingBack) {
  RedisServer server;
  RedisSessionStoreOptions options = OptionsFor(server);
  options.answer_timeout = absl::Milliseconds(200);
  auto store = *RedisSessionStore::Open(options);
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  // When the server resumes, it reads the commands, and responds on a connection that nobody reads.
  std::vector<StatusAnswer> answers(3);
  StatusAnswer deleted;
  ASSERT_TRUE(Create(*store, "t").ok());
  server.Signal(SIGSTOP);
  for (int i = 0; i < 3; ++i) {
    AppendRequest append = OneToken(turn->epoch, 4 + i, 20 + i);
    if (i == 2) append.finish = TurnFinish::kStop;
    store->Append(append, answers[i].Taker());
  }
  store->Delete("ann", "t", deleted.Taker());
  // waits until its patience has ended
  const absl::StatusOr<SessionInfo> created = Create(*store, "u");
  EXPECT_EQ(created.status().code(), StatusCode::kUnavailable) << created.status();
  server.Signal(SIGCONT);
  for (StatusAnswer& answer : answers) EXPECT_TRUE(answer.Get().ok());
  const absl::Status gone = deleted.Get();
  EXPECT_TRUE(gone.ok() || absl::IsUnavailable(gone)) << gone;
  const auto log = Get(*store, "s");
  EXPECT_EQ(log->token_ids, (std::vector<int32_t>{1, 2, 3, 10, 20, 21, 22}));
  EXPECT_EQ(log->turns[0].finish, TurnFinish::kStop);
}

// This front's clock does not move, so the server's clock seems to have jumped.
TEST(RedisSessionStoreTest, NoJumpOfTheServersClockMakesASessionOlder) {
  RedisServer server;
  fakes::ManualClock clock;
  RedisSessionStoreOptions options = OptionsFor(server);
  options.clock = &clock;
  auto store = *RedisSessionStore::Open(options);
  ASSERT_TRUE(Create(*store, "s").ok());
  EXPECT_EQ(*Expire(*store, absl::ZeroDuration(), 10), 0);
  clock.Advance(absl::Minutes(1));
  EXPECT_EQ(*Expire(*store, absl::Seconds(70), 10), 0);
  EXPECT_EQ(*Expire(*store, absl::ZeroDuration(), 10), 1);
}

// An older front does not know the fields of bodies. It neither writes nor deletes them.
TEST(RedisSessionStoreTest, RemainsOfAnotherTurnByAnOlderFrontCountAsNothing) {
  RedisServer server;
  auto store = Open(server);
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto first = Begin(*store, "s", "r1", "one");
  AppendRequest append = FirstAppend(first->epoch);
  append.begin->body_digest = "one";
  append.numerics_id = "avx2";
  append.finish = TurnFinish::kStop;
  ASSERT_TRUE(Append(*store, append).ok());
  // An older front writes its own turns in place of this one: first a turn of another request, and
  // then one without a body. It takes a lease for what it writes.
  const auto write = [&server](std::vector<std::string> command) {
    server.Ask(command);
    server.Ask({"HINCRBY", "tidepool:session:s", "epoch", "1"});
  };
  write({"HSET", "tidepool:session:s", "t0:r", "r2"});
  EXPECT_EQ(Get(*store, "s")->turns[0].body_digest, "");
  EXPECT_EQ(Get(*store, "s")->turns[0].numerics_id, "");
  const auto other = Begin(*store, "s", "r2", "two");
  EXPECT_TRUE(other.ok()) << other.status();
  ASSERT_TRUE(Release(*store, "s", other->epoch).ok());
  write({"HSET", "tidepool:session:s", "t0:r", "r1"});
  EXPECT_EQ(Begin(*store, "s", "r1", "two").status().code(), StatusCode::kAlreadyExists);
  write({"HDEL", "tidepool:session:s", "t0:b", "t0:n"});
  EXPECT_TRUE(Begin(*store, "s", "r1", "two").ok());
  // The session was sealed again.
  EXPECT_TRUE(Get(*store, "s").ok());
  server.Ask({"HSET", "tidepool:session:s", "t0:r", "r9"});
  EXPECT_EQ(Get(*store, "s").status().code(), StatusCode::kDataLoss);
}

TEST(RedisSessionStoreTest, ForgottenScriptsAreLoadedAgain) {
  RedisServer server;
  auto store = Open(server);
  ASSERT_TRUE(Create(*store, "s").ok());
  server.Ask({"SCRIPT", "FLUSH"});
  EXPECT_TRUE(Get(*store, "s").ok());
}

TEST(RedisSessionStoreTest, AServerThatBecameAReplicaIsUnavailable) {
  RedisServer server;
  const RedisServer other;
  RedisSessionStoreOptions options = OptionsFor(server);
  options.patience = absl::Milliseconds(300);
  auto store = *RedisSessionStore::Open(options);
  server.Ask({"REPLICAOF", "127.0.0.1", absl::StrCat(other.address().port)});
  const auto away = Create(*store, "s");
  EXPECT_EQ(away.status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(absl::StrContains(away.status().message(), "slave")) << away.status();
  server.Ask({"REPLICAOF", "NO", "ONE"});
  absl::StatusOr<SessionInfo> back = Create(*store, "s");
  while (absl::IsUnavailable(back.status())) back = Create(*store, "s");
  EXPECT_TRUE(back.ok()) << back.status();
}

TEST(RedisSessionStoreTest, FullMemoryIsSaidAndPasses) {
  RedisServer server;
  auto store = Open(server);
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  server.Ask({"CONFIG", "SET", "maxmemory-policy", "noeviction"});
  server.Ask({"CONFIG", "SET", "maxmemory", "1"});
  const absl::Status full = Append(*store, FirstAppend(turn->epoch));
  EXPECT_EQ(full.code(), StatusCode::kResourceExhausted) << full;
  server.Ask({"CONFIG", "SET", "maxmemory", "0"});
  EXPECT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
}

TEST(RedisSessionStoreTest, ALogThatWasTamperedWithIsReported) {
  RedisServer server;
  auto store = Open(server);
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  server.Ask({"SET", "tidepool:log:s", "12345678"});
  const auto log = Get(*store, "s");
  EXPECT_EQ(log.status().code(), StatusCode::kDataLoss);
  EXPECT_TRUE(absl::StrContains(log.status().message(), "'s' is damaged")) << log.status();
}

TEST(RedisSessionStoreTest, VerifyNamesTheSessionsThatTheIndexesMiss) {
  RedisServer server;
  auto store = Open(server);
  for (const char* id : {"one", "two", "three"}) ASSERT_TRUE(Create(*store, id).ok());
  EXPECT_TRUE(Verify(*store)->empty());
  server.Ask({"DEL", "tidepool:session:one"});
  server.Ask({"ZREM", "tidepool:principal:ann", "two"});
  const auto faults = Verify(*store);
  ASSERT_EQ(faults->size(), 2);
  EXPECT_EQ((*faults)[0], "one: it is indexed and not there");
  EXPECT_EQ((*faults)[1], "two: it is missing from an index");
}

TEST(RedisAddressTest, ReadsUrls) {
  const auto whole = ParseRedisUrl("redis://:p%40ss%3a@cache.example:7000/5");
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->host, "cache.example");
  EXPECT_EQ(whole->port, 7000);
  EXPECT_EQ(whole->database, 5);
  EXPECT_EQ(whole->password, "p@ss:");
  EXPECT_EQ(whole->Name(), "redis://cache.example:7000/5");
  const auto user = ParseRedisUrl("redis://ann:pw@[::1]:6380");
  ASSERT_TRUE(user.ok()) << user.status();
  EXPECT_EQ(user->user, "ann");
  EXPECT_EQ(user->host, "::1");
  EXPECT_EQ(user->Name(), "redis://[::1]:6380");
  EXPECT_EQ(ParseRedisUrl("redis://h")->port, 6379);
  EXPECT_EQ(ParseRedisUrl("redis://h:1/")->database, 0);
  EXPECT_EQ(StoreName("redis://:pw@h:1"), "redis://h:1");
  EXPECT_EQ(StoreName("sessions.db"), "sessions.db");
  for (const char* wrong :
       {"redis://", "redis://:secret@", "redis://secret@h", "redis://:@h", "redis://h:0",
        "redis://h:70000", "redis://h:x", "redis://h/x", "redis://h/-1", "redis://[::1",
        "redis://[::1]x", "redis://:secret%4@h", "http://h"}) {
    const auto refused = ParseRedisUrl(wrong);
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument) << wrong;
    EXPECT_FALSE(absl::StrContains(refused.status().message(), "secret")) << refused.status();
  }
}

}  // namespace
}  // namespace tidepool::service
