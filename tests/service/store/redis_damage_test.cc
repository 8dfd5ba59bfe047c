// Flips bits in the data of a Redis server, and in the file that it loads at its start. The bits
// depend on a seed. A client must never get wrong data without an error or a line in the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"
#include "service/store/redis_scripts.h"
#include "service/store/redis_session_store.h"
#include "tests/service/store/redis_server.h"
#include "tests/service/store/sample_sessions.h"
#include "tests/service/store/store_calls.h"

#ifndef TIDEPOOL_FLIPS
#define TIDEPOOL_FLIPS 100
#endif
// Number of flips in the file. Each needs a start of the server.
#ifndef TIDEPOOL_FILE_FLIPS
#define TIDEPOOL_FILE_FLIPS 20
#endif

namespace tidepool::service {
namespace {

void FlipBit(std::mt19937_64* random, std::string* bytes) {
  const size_t bit = (*random)() % (bytes->size() * 8);
  (*bytes)[bit / 8] = static_cast<char>((*bytes)[bit / 8] ^ (1 << (bit % 8)));
}

std::vector<std::string> Texts(RedisValue array) {
  std::vector<std::string> texts;
  for (size_t i = 0; i < array.size(); ++i) texts.emplace_back(array[i].text());
  return texts;
}

class RedisDamageTest : public testing::Test {
 protected:
  // With this setting, the server itself detects a file whose end is missing.
  RedisDamageTest() : server_(RedisServer::Settings{{"aof-load-truncated", "no"}}) {
    auto store = Open();
    FillStore(store.get(), 3);
    for (int i = 0; i < kSamples; ++i) {
      expected_.push_back(Told(*Get(*store, SampleId(i), SampleOwner(i))));
    }
    EXPECT_TRUE(Verify(*store)->empty());
  }

  std::unique_ptr<SessionStore> Open() {
    RedisSessionStoreOptions options;
    options.address = server_.address();
    auto store = RedisSessionStore::Open(options);
    return store.ok() ? *std::move(store) : nullptr;
  }

  // Reads one session and returns the outcome. `found`: the check of the whole store has found
  // something.
  Outcome Look(SessionStore* store, int i, bool found) {
    const auto log = Get(*store, SampleId(i), SampleOwner(i));
    if (!log.ok()) {
      if (absl::IsDataLoss(log.status())) {
        EXPECT_THAT(log.status().message(), testing::HasSubstr(SampleId(i)));
      }
      EXPECT_FALSE(absl::IsInternal(log.status())) << log.status();
      return absl::IsNotFound(log.status()) && !found ? Outcome::kSilent : Outcome::kNoticed;
    }
    if (Told(*log) != expected_[i]) return Outcome::kSilent;
    Answer<OpenTurn> begun;
    store->BeginTurn({.session_id = SampleId(i), .principal = SampleOwner(i), .request_id = "new"},
                     begun.Taker());
    const auto open = begun.Get();
    if (!open.ok()) return Outcome::kNoticed;
    SessionLogData opened = open->log;
    EndAbandonedTurn(&opened);
    return Told(opened) == expected_[i] ? Outcome::kNoEffect : Outcome::kSilent;
  }

  Outcome Judge(SessionStore* store) {
    const auto faults = Verify(*store);
    const bool found = !faults.ok() || !faults->empty();
    Outcome worst = found ? Outcome::kNoticed : Outcome::kNoEffect;
    for (const char* owner : {"ann", "ben"}) {
      int64_t expected = 0;
      for (int i = 0; i < kSamples; ++i) expected += SampleOwner(i) == owner ? 1 : 0;
      const auto page = List(*store, 100, "", owner);
      if (!page.ok()) continue;
      bool damaged = false;
      for (const SessionInfo& info : page->sessions) damaged |= !info.damage.empty();
      if (damaged) worst = std::max(worst, Outcome::kNoticed);
      if (static_cast<int64_t>(page->sessions.size()) != expected && !damaged && !found) {
        worst = Outcome::kSilent;
      }
    }
    for (int i = 0; i < kSamples; ++i) worst = std::max(worst, Look(store, i, found));
    return worst;
  }

  // Returns everything that the server contains, in the form in which it can be restored.
  std::vector<std::pair<std::string, std::string>> Dump() {
    std::vector<std::pair<std::string, std::string>> dumped;
    const auto link = server_.Link();
    for (const std::string& key : Texts(link->Call({"KEYS", "*"})->value())) {
      dumped.emplace_back(key, std::string(link->Call({"DUMP", key})->value().text()));
    }
    std::sort(dumped.begin(), dumped.end());
    return dumped;
  }

  void Restore(const std::vector<std::pair<std::string, std::string>>& dumped) {
    const auto link = server_.Link();
    ASSERT_TRUE(link->Call({"FLUSHALL"}).ok());
    for (const auto& [key, value] : dumped) {
      ASSERT_TRUE(link->Call({"RESTORE", key, "0", value}).ok());
    }
  }

  // Flips one bit in the name of one key, or in its value.
  void Damage(const std::string& key, std::mt19937_64* random) {
    const auto link = server_.Link();
    const std::string type(link->Call({"TYPE", key})->value().text());
    std::string flipped = key;
    FlipBit(random, &flipped);
    if ((*random)() % 10 == 0) {
      ASSERT_TRUE(link->Call({"RENAME", key, flipped}).ok());
    } else if (type == "string") {
      std::string value(link->Call({"GET", key})->value().text());
      FlipBit(random, &value);
      ASSERT_TRUE(link->Call({"SET", key, value}).ok());
    } else if (type == "hash") {
      const auto fields = Texts(link->Call({"HGETALL", key})->value());
      const size_t at = (*random)() % fields.size();
      std::string name = fields[at - at % 2], value = fields[at - at % 2 + 1];
      ASSERT_TRUE(link->Call({"HDEL", key, name}).ok());
      std::string* damaged = at % 2 == 0 || value.empty() ? &name : &value;
      FlipBit(random, damaged);
      ASSERT_TRUE(link->Call({"HSET", key, name, value}).ok());
    } else {
      const auto members = Texts(link->Call({"ZRANGE", key, "0", "-1", "WITHSCORES"})->value());
      const size_t at = (*random)() % (members.size() / 2) * 2;
      std::string member = members[at];
      ASSERT_TRUE(link->Call({"ZREM", key, member}).ok());
      FlipBit(random, &member);
      ASSERT_TRUE(link->Call({"ZADD", key, members[at + 1], member}).ok());
    }
  }

  RedisServer server_;
  std::vector<std::string> expected_;
};

TEST_F(RedisDamageTest, NoFlippedBitOfAKeyIsSilent) {
  const auto whole = Dump();
  std::map<Outcome, int> outcomes;
  std::mt19937_64 random(20260103);
  for (int flip = 0; flip < TIDEPOOL_FLIPS; ++flip) {
    Restore(whole);
    const std::string& key = whole[random() % whole.size()].first;
    Damage(key, &random);
    const auto store = Open();
    const Outcome outcome = store == nullptr ? Outcome::kNoticed : Judge(store.get());
    ++outcomes[outcome];
    EXPECT_NE(outcome, Outcome::kSilent) << "flip " << flip << " of " << key;
  }
  Report("keys", outcomes);
}

// The script that begins a turn grants the lease before the whole log is compared with its hashes.
TEST_F(RedisDamageTest, ADamagedSessionIsNotBusyAfterATurnWasRefused) {
  const auto link = server_.Link();
  ASSERT_TRUE(link->Call({"HSET", RedisSessionKey(SampleId(0)), "t0:a", "another answer"}).ok());
  const auto store = Open();
  for (const char* request : {"new", "newer"}) {
    const absl::Status refused = Begin(*store, SampleId(0), request).status();
    EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
  }
  EXPECT_TRUE(Delete(*store, SampleId(0), SampleOwner(0)).ok());
}

// No hash covers the end of a lease.
TEST_F(RedisDamageTest, ALeaseThatEndsLaterThanAnyLeaseIsNotHeld) {
  const auto link = server_.Link();
  const auto store = Open();
  for (const char* until_us : {"9999999999999999", "1e999"}) {
    SCOPED_TRACE(until_us);
    ASSERT_TRUE(Begin(*store, SampleId(0), "new").ok());
    EXPECT_TRUE(Get(*store, SampleId(0), SampleOwner(0))->info.busy);
    EXPECT_TRUE(absl::IsAborted(Begin(*store, SampleId(0), "newer").status()));
    ASSERT_TRUE(
        link->Call({"HSET", RedisSessionKey(SampleId(0)), "lease_until_us", until_us}).ok());
    EXPECT_FALSE(Get(*store, SampleId(0), SampleOwner(0))->info.busy);
    const auto open = Begin(*store, SampleId(0), "newer");
    ASSERT_TRUE(open.ok()) << open.status();
    ASSERT_TRUE(Release(*store, SampleId(0), open->epoch).ok());
  }
  ASSERT_TRUE(
      link->Call({"HSET", RedisSessionKey(SampleId(1)), "lease_until_us", "9999999999999999"})
          .ok());
  EXPECT_EQ(*Expire(*store, -absl::Hours(1), 100), kSamples);
}

TEST_F(RedisDamageTest, ADamagedDigestOfARequestIsNotTheClientsFault) {
  const auto link = server_.Link();
  ASSERT_TRUE(
      link->Call({"HSET", RedisSessionKey(SampleId(0)), "t1:b", "digest-7\nrequest-1"}).ok());
  const auto store = Open();
  const absl::Status refused = Begin(*store, SampleId(0), "request-1", "digest-1").status();
  EXPECT_TRUE(absl::IsDataLoss(refused)) << refused;
}

TEST_F(RedisDamageTest, ListsSkipASessionThatIsMissing) {
  const auto link = server_.Link();
  ASSERT_TRUE(link->Call({"DEL", RedisSessionKey(SampleId(6))}).ok());
  const auto store = Open();
  std::vector<std::string> listed;
  std::string token;
  do {
    const auto page = List(*store, 1, token, std::nullopt);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const SessionInfo& info : page->sessions) listed.push_back(info.session_id);
    token = page->next_page_token;
  } while (!token.empty() && listed.size() < 100);
  EXPECT_EQ(listed.size(), kSamples);
}

TEST_F(RedisDamageTest, ASessionThatIsMissingFromTheIndexOfAllIsNamed) {
  const auto link = server_.Link();
  ASSERT_TRUE(link->Call({"ZREM", RedisAllKey(), SampleId(4)}).ok());
  const auto faults = Verify(*Open());
  ASSERT_TRUE(faults.ok()) << faults.status();
  EXPECT_THAT(*faults, testing::Contains(testing::HasSubstr(SampleId(4))));
}

TEST_F(RedisDamageTest, DamagedTextIsListedAsUtf8) {
  const auto link = server_.Link();
  ASSERT_TRUE(link->Call({"HSET", RedisSessionKey(SampleId(2)), "model", "\xff"}).ok());
  ASSERT_TRUE(link->Call({"ZREM", RedisAllKey(), SampleId(4)}).ok());
  ASSERT_TRUE(link->Call({"ZADD", RedisAllKey(), "5", "session-\xb4"}).ok());
  const auto store = Open();
  std::vector<std::string> damaged;
  const auto page = List(*store, 100, "", std::nullopt);
  ASSERT_TRUE(page.ok()) << page.status();
  for (const SessionInfo& info : page->sessions) {
    for (const std::string& text : {info.session_id, info.model, info.damage}) {
      EXPECT_EQ(base::ValidUtf8Prefix(text), text.size()) << text;
    }
    if (!info.damage.empty()) damaged.push_back(info.session_id);
  }
  EXPECT_THAT(damaged, testing::UnorderedElementsAre(SampleId(2), "session-\\xb4"));
  const auto faults = Verify(*store);
  ASSERT_TRUE(faults.ok()) << faults.status();
  EXPECT_FALSE(faults->empty());
  for (const std::string& fault : *faults) {
    EXPECT_EQ(base::ValidUtf8Prefix(fault), fault.size()) << fault;
  }
}

TEST_F(RedisDamageTest, ExpiryPassesDamagedSessions) {
  const auto link = server_.Link();
  ASSERT_TRUE(link->Call({"HSET", RedisSessionKey(SampleId(0)), "model", "another"}).ok());
  ASSERT_TRUE(link->Call({"SET", RedisSessionKey(SampleId(1)), "no hash"}).ok());
  ASSERT_TRUE(link->Call({"DEL", RedisSessionKey(SampleId(2))}).ok());
  std::vector<std::string> log;
  RedisSessionStoreOptions options;
  options.address = server_.address();
  options.log_damage = [&log](absl::string_view line) { log.emplace_back(line); };
  auto store = *RedisSessionStore::Open(options);
  int64_t gone = 0;
  for (int i = 0; i < kSamples; ++i) gone += *Expire(*store, -absl::Hours(1), 2);
  EXPECT_EQ(gone, kSamples - 3);
  store.reset();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(log, testing::Contains(
                         testing::AllOf(
                             testing::HasSubstr(absl::StrCat("'", SampleId(i), "'")),
                             testing::HasSubstr("--session-ttl does not delete damaged sessions")))
                         .Times(1));
  }
}

TEST_F(RedisDamageTest, ASessionIsDeletedByTheIdThatListsShow) {
  const std::string key = RedisSessionKey(SampleId(4));
  const std::string index = RedisPrincipalKey(SampleOwner(4));
  const std::vector<std::vector<std::string>> damages = {
      {"HSET", key, "principal", "bem"},
      {"HSET", key, "id", "session-5"},
      {"HSET", key, "lease_until_us", "9999999999999999", "model", "another"},
      {"DEL", key},
      {"RENAME", key, key + "5"},
      {"ZADD", index, "700", "session-\xb4"},
  };
  const auto whole = Dump();
  const auto link = server_.Link();
  for (const std::vector<std::string>& damage : damages) {
    Restore(whole);
    ASSERT_TRUE(link->Call(damage).ok());
    const auto store = Open();
    const auto damaged = [&] {
      std::vector<std::string> ids;
      const auto page = List(*store, 100, "", SampleOwner(4));
      EXPECT_TRUE(page.ok()) << page.status();
      for (const SessionInfo& info : page->sessions) {
        if (!info.damage.empty()) ids.push_back(info.session_id);
      }
      return ids;
    };
    ASSERT_EQ(damaged().size(), 1) << damage[0];
    EXPECT_TRUE(absl::IsNotFound(Delete(*store, damaged()[0], "eve")) ||
                absl::IsDataLoss(Delete(*store, damaged()[0], "eve")));
    const absl::Status deleted = Delete(*store, damaged()[0], SampleOwner(4));
    EXPECT_TRUE(deleted.ok()) << damage[0] << ": " << deleted;
    EXPECT_TRUE(damaged().empty()) << damage[0];
  }
}

TEST_F(RedisDamageTest, AnotherPlaceInAnIndexIsAFault) {
  const auto link = server_.Link();
  ASSERT_TRUE(link->Call({"ZADD", RedisAllKey(), "7000", SampleId(4)}).ok());
  const auto faults = Verify(*Open());
  ASSERT_EQ(faults->size(), 1);
  EXPECT_THAT(faults->front(), testing::HasSubstr(SampleId(4)));
}

TEST_F(RedisDamageTest, NoFlippedBitOfTheAppendOnlyFileIsSilent) {
  server_.Kill();
  std::filesystem::path file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(server_.folder())) {
    if (entry.path().extension() == ".aof" &&
        entry.path().string().find(".incr.") != std::string::npos) {
      file = entry.path();
    }
  }
  ASSERT_FALSE(file.empty());
  std::ifstream in(file, std::ios::binary);
  const std::string whole{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::map<Outcome, int> outcomes;
  std::mt19937_64 random(20260104);
  for (int flip = 0; flip < TIDEPOOL_FILE_FLIPS; ++flip) {
    std::string damaged = whole;
    FlipBit(&random, &damaged);
    std::ofstream(file, std::ios::binary) << damaged;
    Outcome outcome = Outcome::kNoticed;
    if (server_.TryStart()) {
      const auto store = Open();
      if (store != nullptr) outcome = Judge(store.get());
      server_.Kill();
    }
    ++outcomes[outcome];
    EXPECT_NE(outcome, Outcome::kSilent) << "flip " << flip;
  }
  Report("append-only file", outcomes);
}

}  // namespace
}  // namespace tidepool::service
