// Redis servers that come back without their store, with an older state of it, or with another
// store.
#include "service/store/redis_witness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/mutex.h"
#include "service/store/redis_keys.h"
#include "service/store/redis_session_store.h"
#include "tests/service/store/redis_server.h"
#include "tests/service/store/sample_sessions.h"
#include "tests/service/store/store_calls.h"

namespace tidepool::service {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RedisWitnessTest : public testing::Test {
 protected:
  RedisWitnessTest() : server_(RedisServer::Settings{{"appendfsync", "always"}}) {
    witness_path_ = (server_.folder() / "witness").string();
  }

  std::unique_ptr<SessionStore> Open(int database = 0) {
    {
      base::MutexLock lock(&mutex_);
      log_.clear();
    }
    RedisSessionStoreOptions options;
    options.address = server_.address();
    options.address.database = database;
    options.witness_path = witness_path_;
    options.log_damage = [this](absl::string_view line) {
      base::MutexLock lock(&mutex_);
      log_.emplace_back(line);
    };
    auto store = RedisSessionStore::Open(options);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }

  // Returns the faults that the log has after a start.
  std::vector<std::string> FaultsOfAStart(int database = 0) {
    auto store = Open(database);
    std::vector<std::string> faults = *Verify(*store);
    store.reset();
    base::MutexLock lock(&mutex_);
    EXPECT_EQ(log_.size(), faults.size());
    return faults;
  }

  void Fill() {
    auto store = Open();
    FillStore(store.get(), 1);
    store.reset();
    EXPECT_THAT(FaultsOfAStart(), IsEmpty());
  }

  std::filesystem::path File(const std::string& part) const {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(server_.folder())) {
      if (absl::StrContains(entry.path().filename().string(), part)) return entry.path();
    }
    ADD_FAILURE() << "no file has " << part << " in its name";
    return {};
  }

  // Replaces the first `from` in a file of the server. Requires: the server is not running.
  void Replace(const std::string& part, const std::string& from, const std::string& to) const {
    const std::filesystem::path path = File(part);
    std::ifstream in(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos) << path;
    std::ofstream(path, std::ios::binary) << bytes.replace(at, from.size(), to);
  }

  std::filesystem::path Data() const { return server_.folder() / "appendonlydir"; }

  RedisServer server_;
  std::string witness_path_;
  base::Mutex mutex_;
  std::vector<std::string> log_ TIDEPOOL_GUARDED_BY(mutex_);  // lines since the last call of Open
};

TEST_F(RedisWitnessTest, AnEmptyServerThatWasNeverUsedIsNotAFault) {
  EXPECT_THAT(FaultsOfAStart(), IsEmpty());
  EXPECT_THAT(FaultsOfAStart(), IsEmpty());
  // The store was empty, so nothing was lost.
  server_.Ask({"FLUSHALL"});
  EXPECT_THAT(FaultsOfAStart(), IsEmpty());
}

TEST_F(RedisWitnessTest, AnEmptyServerThatHadSessionsIsAFaultUntilItIsUsed) {
  Fill();
  server_.Kill();
  std::filesystem::remove_all(Data());
  server_.Start();
  for (int start = 0; start < 2; ++start) {
    EXPECT_THAT(FaultsOfAStart(), ElementsAre(HasSubstr("all of its 12 sessions are lost")));
  }
  ASSERT_TRUE(Create(*Open(), "s").ok());
  EXPECT_THAT(FaultsOfAStart(), IsEmpty());
}

// After one flipped bit in the manifest, Redis deletes a file of changes.
TEST_F(RedisWitnessTest, ADamagedManifestIsAFault) {
  Fill();
  server_.Kill();
  Replace(".manifest", "type i", "type h");
  server_.Start();
  EXPECT_THAT(FaultsOfAStart(), ElementsAre(HasSubstr("all of its 12 sessions are lost")));
}

// Redis alone shows this fault, even to a front that remembers nothing.
TEST_F(RedisWitnessTest, ADamagedSelectCommandIsAFaultWithoutAWitness) {
  witness_path_ = "";
  Fill();
  server_.Kill();
  Replace(".incr.", "SELECT\r\n$1\r\n0", "SELECT\r\n$1\r\n1");
  server_.Start();
  EXPECT_THAT(FaultsOfAStart(),
              ElementsAre(HasSubstr("database 1 of the server has changes of the sessions in "
                                    "database 0")));
  EXPECT_THAT(FaultsOfAStart(1),
              testing::Contains(HasSubstr("database 1 has the sessions of database 0")));
}

TEST_F(RedisWitnessTest, StoresInTwoDatabasesOfOneServerAreNoFault) {
  Fill();
  witness_path_ = "";
  EXPECT_THAT(FaultsOfAStart(3), IsEmpty());
  EXPECT_THAT(FaultsOfAStart(0), IsEmpty());
}

TEST_F(RedisWitnessTest, AnOlderStateIsALossThatIsRemembered) {
  Fill();
  server_.Kill();
  const std::filesystem::path old = server_.folder() / "old";
  std::filesystem::copy(Data(), old);
  server_.Start();
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  ASSERT_TRUE(Delete(*store, "s").ok());
  store.reset();
  server_.Kill();
  std::filesystem::remove_all(Data());
  std::filesystem::rename(old, Data());
  server_.Start();
  for (int start = 0; start < 2; ++start) {
    EXPECT_THAT(FaultsOfAStart(),
                ElementsAre(HasSubstr("the last 2 changes are lost (it had 12 sessions then, and "
                                      "has 12)")));
  }
}

TEST_F(RedisWitnessTest, AnotherStoreIsAFault) {
  Fill();
  server_.Ask({"FLUSHALL"});
  witness_path_ += "-other";
  ASSERT_TRUE(Create(*Open(), "s").ok());
  witness_path_ = (server_.folder() / "witness").string();
  EXPECT_THAT(FaultsOfAStart(),
              ElementsAre(HasSubstr("the database has another store, with 1 sessions")));
}

// The fault is detected at a new connection, and also on the connection that is open.
TEST_F(RedisWitnessTest, ARunningFrontNoticesAServerThatIsEmptied) {
  auto store = Open();
  FillStore(store.get(), 1);
  RedisWitness witness("", 0);
  const absl::Time now = absl::UnixEpoch();
  EXPECT_THAT(*witness.Check(server_.Link().get(), now), IsEmpty());
  EXPECT_THAT(*witness.Remember(server_.Link().get(), now), IsEmpty());
  const auto lost = ElementsAre(HasSubstr("all of its 12 sessions are lost"));
  server_.Ask({"FLUSHALL"});
  EXPECT_THAT(*witness.Remember(server_.Link().get(), now), lost);
  EXPECT_THAT(*witness.Remember(server_.Link().get(), now), IsEmpty());
  EXPECT_THAT(witness.Faults(), lost);
  server_.Ask({"FLUSHALL"});
  EXPECT_THAT(*witness.Check(server_.Link().get(), now), lost);
}

TEST_F(RedisWitnessTest, ADamagedCountDoesNotStopCalls) {
  Fill();
  server_.Ask({"HSET", RedisStoreKey(), "commits", "7x"});
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  EXPECT_THAT(*Verify(*store), ElementsAre(HasSubstr("count of changes was damaged")));
  server_.Ask({"SET", RedisStoreKey(), "no hash"});
  ASSERT_TRUE(Create(*store, "t").ok());
  store.reset();
  EXPECT_THAT(FaultsOfAStart(), ElementsAre(HasSubstr("tidepool:store is damaged")));
}

}  // namespace
}  // namespace tidepool::service
