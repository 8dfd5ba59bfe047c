#include "service/store/session_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "service/store/lease.h"
#include "tests/service/store/memory_db.h"

namespace tidepool::service {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr absl::Time kCreated = absl::FromUnixSeconds(1000);

template <typename Row>
std::vector<Row> Rows(RowCursor<Row> cursor) {
  std::vector<Row> rows;
  while (true) {
    auto row = cursor.Next();
    EXPECT_TRUE(row.ok()) << row.status();
    if (!row.ok() || !row->has_value()) return rows;
    rows.push_back(**std::move(row));
  }
}

std::vector<std::string> Ids(const std::vector<SessionRow>& rows) {
  std::vector<std::string> ids;
  ids.reserve(rows.size());
  for (const SessionRow& row : rows) ids.push_back(row.info.session_id);
  return ids;
}

class SessionTableTest : public testing::Test {
 protected:
  SessionTable Open(SessionTable::Lookup lookup = SessionTable::Lookup::kIndex) {
    return SessionTable::Open(db_, lookup).value();
  }

  void Insert(const std::string& id, const std::string& principal) {
    EXPECT_TRUE(table_
                    .Insert({.session_id = id,
                             .principal = principal,
                             .model = "model",
                             .model_digest = "digest"},
                            kCreated)
                    .ok());
  }

  SqliteDb db_ = MakeMemoryDb();
  SessionTable table_ = Open();
};

TEST_F(SessionTableTest, ReadsBackTheWrittenRow) {
  Insert("a", "ann");
  SessionRow row = **table_.Find("a");
  EXPECT_EQ(row.key, 1);
  EXPECT_EQ(row.info.principal, "ann");
  EXPECT_EQ(row.info.model, "model");
  EXPECT_EQ(row.info.model_digest, "digest");
  EXPECT_EQ(row.info.create_time, kCreated);
  EXPECT_EQ(row.info.update_time, kCreated);
  EXPECT_EQ(row.info.token_count, 0);
  EXPECT_TRUE(row.classes_fit);

  row.info.kind = SessionKind::kChat;
  row.info.update_time = kCreated + absl::Seconds(5);
  row.info.token_count = 12;
  row.info.turn_count = 2;
  row.info.epoch = 3;
  row.lease_request = "request";
  row.lease_body = "body";
  row.lease_until_us = 77;
  row.log_hash = {.high = 1, .low = 2};
  row.turns_hash = {.high = 3, .low = 4};
  row.seal = {.high = 5, .low = 6};
  ASSERT_TRUE(table_.Update(row).ok());
  const SessionRow read = **table_.At(row.key);
  EXPECT_EQ(read.info.kind, SessionKind::kChat);
  EXPECT_EQ(read.info.update_time, row.info.update_time);
  EXPECT_EQ(read.info.create_time, kCreated);
  EXPECT_EQ(read.info.token_count, 12);
  EXPECT_EQ(read.info.turn_count, 2);
  EXPECT_EQ(read.info.epoch, 3);
  EXPECT_EQ(read.lease_request, "request");
  EXPECT_EQ(read.lease_body, "body");
  EXPECT_EQ(read.lease_until_us, 77);
  EXPECT_EQ(read.log_hash, row.log_hash);
  EXPECT_EQ(read.turns_hash, row.turns_hash);
  EXPECT_EQ(read.seal, row.seal);
}

TEST_F(SessionTableTest, PagesStartWithTheNewestRow) {
  for (const char* id : {"a", "b", "c", "d"}) Insert(id, id[0] == 'c' ? "ben" : "ann");
  EXPECT_THAT(Ids(Rows(table_.Page(INT64_MAX, 3))), ElementsAre("d", "c", "b"));
  EXPECT_THAT(Ids(Rows(table_.Page(2, 3))), ElementsAre("a"));
  EXPECT_THAT(Ids(Rows(table_.PageOf("ann", INT64_MAX, 2))), ElementsAre("d", "b"));
  EXPECT_THAT(Ids(Rows(table_.PageOf("ben", INT64_MAX, 2))), ElementsAre("c"));
  EXPECT_THAT(Ids(Rows(table_.All())), ElementsAre("a", "b", "c", "d"));
  const std::vector<IndexedSession> indexed = Rows(table_.IndexPage(3, 5));
  ASSERT_EQ(indexed.size(), 2);
  EXPECT_EQ(indexed[0].key, 2);
  EXPECT_EQ(indexed[0].session_id, "b");
  EXPECT_EQ(*table_.Count(), 4);
  EXPECT_EQ(*table_.CountOf("ann"), 3);
}

TEST_F(SessionTableTest, ADestroyedCursorFreesItsStatement) {
  for (const char* id : {"a", "b"}) Insert(id, "ann");
  EXPECT_TRUE(table_.All().Next()->has_value());
  EXPECT_THAT(Ids(Rows(table_.All())), ElementsAre("a", "b"));
}

TEST_F(SessionTableTest, DeletedKeysAreNotReused) {
  Insert("a", "ann");
  ASSERT_TRUE(table_.Delete(1).ok());
  EXPECT_FALSE(table_.Find("a")->has_value());
  EXPECT_FALSE(table_.At(1)->has_value());
  Insert("a", "ann");
  EXPECT_EQ((**table_.Find("a")).key, 2);
}

TEST_F(SessionTableTest, FindsUnchangedSessionsThatHaveNoLease) {
  for (const char* id : {"old", "older", "leased", "new", "last"}) Insert(id, "ann");
  const auto change = [&](const std::string& id, int64_t seconds, int64_t lease_until_us) {
    SessionRow row = **table_.Find(id);
    row.info.update_time = absl::FromUnixSeconds(seconds);
    row.lease_until_us = lease_until_us;
    ASSERT_TRUE(table_.Update(row).ok());
  };
  change("old", 20, 5);
  change("older", 10, 0);
  change("leased", 10, 6);
  change("new", 31, 0);
  const int64_t longest = 5 + absl::ToInt64Microseconds(kMaxLease);
  change("last", 10, longest);
  const absl::Time latest = absl::FromUnixSeconds(30);
  const absl::Duration now = absl::Microseconds(5);
  EXPECT_THAT(Rows(table_.UnchangedSince(latest, now, 10)), ElementsAre(2, 1));
  EXPECT_THAT(Rows(table_.UnchangedSince(latest, now, 1)), ElementsAre(2));
  EXPECT_THAT(Rows(table_.InUse()), ElementsAre(1, 3, 5));
  change("last", 15, longest + 1);
  EXPECT_THAT(Rows(table_.UnchangedSince(latest, now, 10)), ElementsAre(2, 5, 1))
      << "it ends later than any lease";
}

TEST_F(SessionTableTest, AColumnOfAnotherClassIsReportedAndFoundByItsBytes) {
  Insert("a", "ann");
  ASSERT_TRUE(db_.Execute("UPDATE sessions SET session_id = CAST(session_id AS BLOB)").ok());
  for (const auto lookup : {SessionTable::Lookup::kIndex, SessionTable::Lookup::kScan}) {
    const auto row = Open(lookup).Find("a");
    ASSERT_TRUE(row.ok() && row->has_value());
    EXPECT_FALSE((*row)->classes_fit);
  }
  EXPECT_THAT(Rows(table_.Page(1, 5)), IsEmpty());
}

}  // namespace
}  // namespace tidepool::service
