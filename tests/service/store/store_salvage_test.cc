// What can still be read in a store with pages that SQLite cannot read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/utf8.h"
#include "service/store/sqlite_db.h"
#include "service/store/sqlite_session_store.h"
#include "tests/service/store/sample_sessions.h"
#include "tests/service/store/store_calls.h"

namespace tidepool::service {
namespace {

class StoreSalvageTest : public testing::Test {
 protected:
  StoreSalvageTest() {
    std::string folder = absl::StrCat(testing::TempDir(), "/salvage_XXXXXX");
    folder_ = mkdtemp(folder.data());
    path_ = (folder_ / "sessions.db").string();
    auto store = Open(StoreUse::kServe).value();
    FillStore(store.get(), 3);
    for (int i = 0; i < kSamples; ++i) {
      expected_.push_back(Told(*Get(*store, SampleId(i), SampleOwner(i))));
    }
    store.reset();
    whole_ = Bytes();
  }
  ~StoreSalvageTest() override { std::filesystem::remove_all(folder_); }

  absl::StatusOr<std::unique_ptr<SessionStore>> Open(StoreUse use) {
    return SqliteSessionStore::Open({.path = path_, .use = use});
  }

  std::string Bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  // The first page has the number 1.
  void ZeroPage(int64_t page) const {
    std::string bytes = whole_;
    bytes.replace((page - 1) * kPageBytes, kPageBytes, kPageBytes, '\0');
    std::ofstream(path_, std::ios::binary) << bytes;
  }

  int64_t RootOf(const std::string& name) const {
    std::ofstream(path_, std::ios::binary) << whole_;
    return *SqliteDb::Open(path_)->QueryInt(
        absl::StrCat("SELECT rootpage FROM sqlite_schema WHERE name = '", name, "'"));
  }

  // Returns how many sessions are unchanged. All others must be damaged and named.
  int CountWhole(SessionStore& store) const {
    int whole = 0;
    for (int i = 0; i < kSamples; ++i) {
      const auto log = Get(store, SampleId(i), std::nullopt);
      if (log.ok()) {
        EXPECT_EQ(Told(*log), expected_[i]);
        ++whole;
      } else {
        EXPECT_TRUE(absl::IsDataLoss(log.status())) << log.status();
        EXPECT_TRUE(absl::StrContains(log.status().message(), SampleId(i))) << log.status();
      }
    }
    return whole;
  }

  // Deletes the damaged sessions of a store, and checks that the others stay readable. Returns how
  // many were deleted.
  int DeleteDamaged(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto store = SqliteSessionStore::Open({.path = path_});
    if (!store.ok()) return 0;
    int deleted = 0;
    std::vector<int> whole;
    std::vector<int> damaged;
    for (int i = 0; i < kSamples; ++i) {
      (Get(**store, SampleId(i), std::nullopt).ok() ? whole : damaged).push_back(i);
    }
    for (const int i : damaged)
      deleted += Delete(**store, SampleId(i), SampleOwner(i)).ok() ? 1 : 0;
    for (const int i : whole) {
      const auto log = Get(**store, SampleId(i), std::nullopt);
      EXPECT_TRUE(log.ok() && Told(*log) == expected_[i]) << log.status();
    }
    return deleted;
  }

  std::filesystem::path folder_;
  std::string path_;
  std::string whole_;
  std::vector<std::string> expected_;
};

TEST_F(StoreSalvageTest, AnyPageCostsOnlySessionsWithDataOnIt) {
  const int64_t schema = 1;
  const int64_t sessions = RootOf("sessions");
  for (int64_t page = 1; page <= static_cast<int64_t>(whole_.size()) / kPageBytes; ++page) {
    ZeroPage(page);
    auto store = Open(StoreUse::kSalvage);
    ASSERT_EQ(store.ok(), page != schema) << page << ": " << store.status();
    if (!store.ok()) continue;
    const auto faults = Verify(**store);
    ASSERT_TRUE(faults.ok()) << faults.status();
    if (page != sessions) {
      EXPECT_EQ(List(**store, 100, "", std::nullopt)->sessions.size(), kSamples) << page;
    }
    CountWhole(**store);
    EXPECT_EQ(Create(**store, "t").status().code(), absl::StatusCode::kFailedPrecondition);
    const std::string damaged = Bytes();
    store->reset();
    EXPECT_EQ(Bytes(), damaged) << page;
  }
}

TEST_F(StoreSalvageTest, NoIndexIsNeeded) {
  for (const char* index : {"sqlite_autoindex_sessions_1", "sessions_by_principal",
                            "sessions_by_update", "running_turns", "sqlite_sequence", "store"}) {
    ZeroPage(RootOf(index));
    EXPECT_TRUE(absl::IsDataLoss(Open(StoreUse::kServe).status())) << index;
    EXPECT_EQ(CountWhole(**Open(StoreUse::kSalvage)), kSamples) << index;
  }
}

// The rows of sessions fill several pages. Only the rows of one page are lost, and they are named.
TEST_F(StoreSalvageTest, APageOfSessionsCostsOnlyThoseSessions) {
  constexpr int kMany = 60;
  std::filesystem::remove(path_);
  auto store = Open(StoreUse::kServe).value();
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(Create(*store, absl::StrCat("s", i)).ok());
  store.reset();
  whole_ = Bytes();
  const auto root = static_cast<size_t>(RootOf("sessions") - 1) * kPageBytes;
  // This is the last child of the table's root. See
  // https://www.sqlite.org/fileformat2.html#b_tree_pages
  const auto last_child = static_cast<unsigned char>(whole_[root + 11]);
  ZeroPage(last_child);
  EXPECT_TRUE(absl::IsDataLoss(Open(StoreUse::kServe).status()));
  store = Open(StoreUse::kSalvage).value();
  int damaged = 0;
  int listed = 0;
  std::string token;
  do {
    const auto page = List(*store, 7, token, std::nullopt);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const SessionInfo& info : page->sessions) {
      ++listed;
      const absl::Status got = Get(*store, info.session_id, std::nullopt).status();
      EXPECT_EQ(got.ok(), info.damage.empty()) << got;
      damaged += got.ok() ? 0 : 1;
      EXPECT_TRUE(got.ok() || absl::StrContains(info.damage, info.session_id)) << info.damage;
    }
    token = page->next_page_token;
  } while (!token.empty());
  EXPECT_EQ(listed, kMany);
  EXPECT_GT(damaged, 0);
  EXPECT_LT(damaged, kMany / 2);
}

TEST_F(StoreSalvageTest, AStoreThatServesIsVerifiedPastAPageThatCannotBeRead) {
  for (const char* table : {"turns", "chunks"}) {
    ZeroPage(RootOf(table));
    const auto store = Open(StoreUse::kServe);
    ASSERT_TRUE(store.ok()) << store.status();
    const auto faults = Verify(**store);
    ASSERT_TRUE(faults.ok()) << faults.status();
    EXPECT_FALSE(faults->empty()) << table;
  }
}

// Rows of several sessions are on the same page. If some rows of a damaged page are deleted, the
// others must stay undamaged.
TEST_F(StoreSalvageTest, DeletingADamagedSessionLeavesTheOthersReadable) {
  int deleted = 0;
  std::mt19937_64 random(20260105);
  const auto pages = static_cast<int64_t>(whole_.size()) / kPageBytes;
  for (int64_t damage = 0; damage < 4 * (pages - 1); ++damage) {
    const int64_t page = 2 + damage / 4;
    std::string bytes = whole_;
    if (damage % 4 == 0) {
      // The page looks as if the file ended inside it.
      bytes.replace((page - 1) * kPageBytes + 600, kPageBytes - 600, kPageBytes - 600, '\0');
    } else {
      const int64_t at = (page - 1) * kPageBytes + random() % (kPageBytes - 40);
      for (int64_t i = at; i < at + 40; ++i) bytes[i] = static_cast<char>(random());
    }
    deleted += DeleteDamaged(bytes);
  }
  EXPECT_GT(deleted, 0);
}

// The fields of a list are strings in protobuf messages. So they must be UTF-8.
TEST_F(StoreSalvageTest, ADamagedRowIsListedAsUtf8UnderTheNameThatClientsKnow) {
  const size_t row = whole_.find(SampleId(5) + SampleOwner(5));
  ASSERT_NE(row, std::string::npos);
  const size_t model = row + SampleId(5).size() + SampleOwner(5).size();
  for (const size_t at : {row + 3, model}) {
    std::string bytes = whole_;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x80);
    std::ofstream(path_, std::ios::binary) << bytes;
    const auto store = Open(StoreUse::kServe);
    ASSERT_TRUE(store.ok()) << store.status();
    int damaged = 0;
    const auto page = List(**store, 100, "", std::nullopt);
    ASSERT_TRUE(page.ok()) << page.status();
    for (const SessionInfo& info : page->sessions) {
      if (info.damage.empty()) continue;
      ++damaged;
      EXPECT_EQ(info.session_id, SampleId(5));
      EXPECT_TRUE(absl::StrContains(info.damage, absl::StrCat("'", SampleId(5), "'")))
          << info.damage;
      EXPECT_EQ(info.model, "");
    }
    EXPECT_EQ(damaged, 1) << at;
    const auto faults = Verify(**store);
    ASSERT_TRUE(faults.ok()) << faults.status();
    for (const std::string& fault : *faults) {
      EXPECT_EQ(base::ValidUtf8Prefix(fault), fault.size()) << fault;
    }
    const absl::Status got = Get(**store, SampleId(5), std::nullopt).status();
    EXPECT_TRUE(absl::IsDataLoss(got)) << got;
    EXPECT_TRUE(absl::StrContains(got.message(), SampleId(5))) << got;
  }
}

}  // namespace
}  // namespace tidepool::service
