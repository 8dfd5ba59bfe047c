// What is possible with damaged sessions of a SQLite store: they can be deleted, and they do not
// prevent others from expiring.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "service/store/lease.h"
#include "service/store/sqlite_db.h"
#include "service/store/sqlite_session_store.h"
#include "tests/service/store/sample_sessions.h"
#include "tests/service/store/store_calls.h"

namespace tidepool::service {
namespace {

class DamagedSessionsTest : public testing::Test {
 protected:
  DamagedSessionsTest() {
    std::string folder = absl::StrCat(testing::TempDir(), "/damaged_XXXXXX");
    folder_ = mkdtemp(folder.data());
    path_ = (folder_ / "sessions.db").string();
    auto store = Open();
    FillStore(store.get(), 3);
    for (int i = 0; i < kSamples; ++i) {
      expected_.push_back(Told(*Get(*store, SampleId(i), std::nullopt)));
    }
    store.reset();
    std::ifstream file(path_, std::ios::binary);
    whole_ = {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  ~DamagedSessionsTest() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<SessionStore> Open() {
    log_.clear();
    auto store = SqliteSessionStore::Open(
        {.path = path_, .log = [this](absl::string_view line) { log_.emplace_back(line); }});
    return store.ok() ? *std::move(store) : nullptr;
  }

  void Put(const std::string& bytes) const {
    for (const char* suffix : {"-wal", "-commits"}) std::filesystem::remove(path_ + suffix);
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  std::set<std::string> DamagedIn(SessionStore& store) const {
    std::set<std::string> damaged;
    for (int i = 0; i < kSamples; ++i) {
      const auto log = Get(store, SampleId(i), std::nullopt);
      if (absl::IsDataLoss(log.status())) damaged.insert(SampleId(i));
    }
    return damaged;
  }

  bool LogNames(const std::string& id) const {
    for (const std::string& line : log_) {
      if (absl::StrContains(line, absl::StrCat("'", id, "'")) &&
          absl::StrContains(line, "--session-ttl does not delete damaged sessions")) {
        return true;
      }
    }
    return false;
  }

  std::filesystem::path folder_;
  std::string path_;
  std::string whole_;
  std::vector<std::string> expected_;
  std::vector<std::string> log_;  // lines since the last call of Open
};

// Damages every page, because any page may contain rows of some sessions.
TEST_F(DamagedSessionsTest, ExpiryPassesSessionsOnAPageThatCannotBeRead) {
  int pages = 0;
  for (size_t at = kPageBytes; at + kPageBytes <= whole_.size(); at += kPageBytes) {
    std::string bytes = whole_;
    bytes.replace(at, kPageBytes, kPageBytes, '\0');
    Put(bytes);
    const auto store = Open();
    if (store == nullptr) continue;
    const std::set<std::string> damaged = DamagedIn(*store);
    pages += damaged.empty() ? 0 : 1;
    const auto gone = Expire(*store, -absl::Hours(1), 100);
    ASSERT_TRUE(gone.ok()) << at << ": " << gone.status();
    EXPECT_EQ(*gone, kSamples - damaged.size()) << at;
    for (const std::string& id : damaged) EXPECT_TRUE(LogNames(id)) << at << ": " << id;
    EXPECT_EQ(DamagedIn(*store), damaged);
    EXPECT_EQ(*Count(*store), damaged.size());
    // Each damaged session is logged once.
    const size_t lines = log_.size();
    EXPECT_EQ(*Expire(*store, -absl::Hours(1), 100), 0);
    EXPECT_EQ(log_.size(), lines);
  }
  EXPECT_GT(pages, 0);
}

TEST_F(DamagedSessionsTest, DamagedSessionsDoNotFillASearchForExpiredOnes) {
  auto store = Open();
  store.reset();
  {
    const auto db = SqliteDb::Open(path_);
    ASSERT_TRUE(db.ok()) << db.status();
    ASSERT_TRUE(db->Execute("UPDATE sessions SET model = 'x' WHERE key <= 3").ok());
  }
  store = Open();
  int64_t gone = 0;
  for (int i = 0; i < kSamples; ++i) gone += *Expire(*store, -absl::Hours(1), 2);
  EXPECT_EQ(gone, kSamples - 3);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(LogNames(SampleId(i))) << i;
}

// Damages one byte of each column in the row of one session.
TEST_F(DamagedSessionsTest, ASessionIsDeletedByTheIdThatListsShow) {
  constexpr int kDamaged = 5;
  const std::string id = SampleId(kDamaged);
  const std::string owner = SampleOwner(kDamaged);
  const size_t row = whole_.find(absl::StrCat(id, owner, "md"));
  ASSERT_NE(row, std::string::npos);
  const size_t owner_at = row + id.size();
  const size_t model_at = owner_at + owner.size();
  const size_t created_at = model_at + 2;
  const size_t updated_at = created_at + 8;
  for (const size_t at : {row, row + 3, owner_at, model_at, created_at + 7, updated_at + 7}) {
    for (const char bit : {'\x01', '\x80'}) {
      std::string bytes = whole_;
      bytes[at] = static_cast<char>(bytes[at] ^ bit);
      Put(bytes);
      auto store = Open();
      ASSERT_NE(store, nullptr);
      std::vector<std::string> damaged;
      const auto page = List(*store, 100, "", owner);
      ASSERT_TRUE(page.ok()) << page.status();
      for (const SessionInfo& info : page->sessions) {
        if (!info.damage.empty()) damaged.push_back(info.session_id);
      }
      ASSERT_EQ(damaged, std::vector<std::string>{id}) << at - row;
      EXPECT_TRUE(absl::IsNotFound(Delete(*store, id, "ann")));
      const absl::Status deleted = Delete(*store, damaged[0], owner);
      EXPECT_TRUE(deleted.ok()) << at - row << ": " << deleted;
      EXPECT_EQ(List(*store, 100, "", std::nullopt)->sessions.size(), kSamples - 1);
      store.reset();
      store = Open();
      EXPECT_TRUE(log_.empty()) << at - row << ": " << log_[0];
      EXPECT_TRUE(Verify(*store)->empty()) << at - row << ": " << Verify(*store)->front();
      for (int i = 0; i < kSamples; ++i) {
        const auto log = Get(*store, SampleId(i), std::nullopt);
        EXPECT_EQ(log.ok(), i != kDamaged) << log.status();
        EXPECT_EQ(log.ok() ? Told(*log) : expected_[i], expected_[i]);
      }
      EXPECT_TRUE(Create(*store, id, owner).ok());
    }
  }
}

// The lease of a process that was killed has no meaning for the next process.
TEST_F(DamagedSessionsTest, ADamagedSessionWhoseTurnWasKilledCanBeDeleted) {
  auto store = Open();
  ASSERT_TRUE(Create(*store, "s").ok());
  const auto turn = Begin(*store, "s", "r1");
  ASSERT_TRUE(Append(*store, FirstAppend(turn->epoch)).ok());
  ASSERT_TRUE(Renew(*store, "s", turn->epoch, kMaxLease).ok());
  std::filesystem::path killed = folder_ / "killed";
  std::filesystem::create_directories(killed);
  for (const char* suffix : {"", "-wal", "-commits"}) {
    std::filesystem::copy_file(path_ + suffix, (killed / "sessions.db").string() + suffix);
  }
  store.reset();
  path_ = (killed / "sessions.db").string();
  {
    const auto db = SqliteDb::Open(path_);
    ASSERT_TRUE(db.ok()) << db.status();
    ASSERT_TRUE(db->Execute("UPDATE turns SET request_id = 'x' WHERE request_id = 'r1'").ok());
  }
  store = Open();
  ASSERT_NE(store, nullptr);
  EXPECT_TRUE(absl::IsDataLoss(Get(*store, "s").status()));
  const absl::Status deleted = Delete(*store, "s");
  EXPECT_TRUE(deleted.ok()) << deleted;
}

}  // namespace
}  // namespace tidepool::service
