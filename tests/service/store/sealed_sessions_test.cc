// SealedSessions and SealedLogs with the tables of one database.
#include "service/store/sealed_sessions.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "service/store/lease.h"
#include "service/store/sealed_logs.h"
#include "tests/service/store/memory_db.h"

namespace tidepool::service {
namespace {

class SealedSessionsTest : public testing::Test {
 protected:
  static constexpr StoreTime kNow = {.wall = absl::FromUnixSeconds(1000),
                                     .monotonic = absl::Seconds(5)};

  SessionRow Add(const std::string& id, const std::string& principal = "ann") {
    return sessions_
        ->Add({.session_id = id, .principal = principal, .model = "m", .model_digest = "d"}, kNow)
        .value();
  }

  // Adds a session with one turn: three tokens of input and one token of output.
  SessionRow AddWithTurn(const std::string& id, TurnFinish finish) {
    SessionRow row = Add(id);
    EXPECT_TRUE(logs_->StartTurn(&row, {.request_id = "r", .input_ids = {1, 2, 3}}).ok());
    EXPECT_TRUE(logs_->AddOutput(&row, {4}, "four").ok());
    EXPECT_TRUE(logs_->UpdateRunningTurn(&row, finish, "avx2").ok());
    EXPECT_TRUE(sessions_->Save(&row).ok());
    return row;
  }

  SessionLogData Read(const std::string& id) {
    SessionLogData log;
    const absl::Status read = logs_->Read(sessions_->Find(id, kNow).value(), &log);
    EXPECT_TRUE(read.ok()) << read;
    return log;
  }

  void ExpectLedgerFits() {
    const SessionScan scan = sessions_->Scan();
    EXPECT_TRUE(scan.end.ok()) << scan.end;
    EXPECT_EQ(scan.sessions, ledger_->sessions());
    EXPECT_EQ(scan.sum, ledger_->sum());
  }

  void Damage(const char* sql) { ASSERT_TRUE(db_.Execute(sql).ok()); }

  SqliteDb db_ = MakeMemoryDb();
  std::unique_ptr<StoreLedger> ledger_ = StoreLedger::Open(db_).value();
  std::unique_ptr<SealedSessions> sessions_ =
      SealedSessions::Open(db_, ledger_.get(), {.max_sessions = 2}).value();
  std::unique_ptr<SealedLogs> logs_ = SealedLogs::Open(db_).value();
};

TEST_F(SealedSessionsTest, TheLedgerFollowsEveryChange) {
  const SessionRow one = AddWithTurn("one", TurnFinish::kStop);
  Add("two");
  ExpectLedgerFits();
  ASSERT_TRUE(sessions_->Remove(one).ok());
  ExpectLedgerFits();
  EXPECT_EQ(ledger_->sessions(), 1);
  Damage("UPDATE sessions SET model = 'another'");
  ASSERT_TRUE(sessions_->Remove(sessions_->FindUnchecked("two", kNow).value()).ok());
  ExpectLedgerFits();
  EXPECT_EQ(ledger_->sessions(), 0);
}

TEST_F(SealedSessionsTest, AddRefusesTakenIdsAndTooManySessions) {
  Add("one");
  const auto taken = sessions_->Add({.session_id = "one", .principal = "ben"}, kNow);
  EXPECT_TRUE(absl::IsAlreadyExists(taken.status())) << taken.status();
  Add("two");
  const auto third = sessions_->Add({.session_id = "three", .principal = "ann"}, kNow);
  EXPECT_TRUE(absl::IsResourceExhausted(third.status())) << third.status();
  Add("three", "ben");
}

TEST_F(SealedSessionsTest, FindChecksTheSealAndTheOwner) {
  Add("one");
  EXPECT_TRUE(sessions_->FindOwned("ann", "one", kNow).ok());
  EXPECT_TRUE(absl::IsNotFound(sessions_->FindOwned("ben", "one", kNow).status()));
  EXPECT_TRUE(absl::IsNotFound(sessions_->Find("two", kNow).status()));
  Damage("UPDATE sessions SET model = 'another'");
  EXPECT_TRUE(absl::IsDataLoss(sessions_->Find("one", kNow).status()));
  EXPECT_TRUE(absl::IsDataLoss(sessions_->FindKey(1, kNow).status()));
  EXPECT_TRUE(sessions_->FindUnchecked("one", kNow).ok());
  EXPECT_EQ(sessions_->Scan().damaged.size(), 1);
  const SessionPage page = sessions_->List(std::nullopt, 10, "", kNow).value();
  EXPECT_TRUE(absl::StrContains(page.sessions.at(0).damage, "does not match its seal"));
}

TEST_F(SealedSessionsTest, ARowIsBusyUntilItsLeaseEnds) {
  SessionRow row = Add("one");
  row.lease_until_us = absl::ToInt64Microseconds(kNow.monotonic) + 1;
  ASSERT_TRUE(sessions_->Save(&row).ok());
  EXPECT_TRUE(sessions_->Find("one", kNow)->info.busy);
  EXPECT_TRUE(sessions_->List("ann", 1, "", kNow)->sessions.at(0).busy);
  StoreTime later = kNow;
  later.monotonic += absl::Microseconds(1);
  EXPECT_FALSE(sessions_->Find("one", later)->info.busy);
}

TEST_F(SealedSessionsTest, ALeaseThatEndsLaterThanAnyLeaseIsNotHeld) {
  SessionRow row = Add("one");
  const int64_t last = absl::ToInt64Microseconds(kNow.monotonic + kMaxLease);
  for (const auto& [until_us, busy] : {std::pair(last, true), std::pair(last + 1, false),
                                       std::pair(last | int64_t{1} << 60, false)}) {
    row.lease_until_us = until_us;
    ASSERT_TRUE(sessions_->Save(&row).ok());
    EXPECT_EQ(sessions_->Find("one", kNow)->info.busy, busy) << until_us;
  }
}

TEST_F(SealedSessionsTest, ALogIsReadAsItWasWritten) {
  AddWithTurn("one", TurnFinish::kStop);
  const SessionLogData log = Read("one");
  EXPECT_EQ(log.token_ids, (std::vector<int32_t>{1, 2, 3, 4}));
  ASSERT_EQ(log.turns.size(), 1);
  EXPECT_EQ(log.turns[0].response, "four");
  EXPECT_EQ(log.turns[0].end, 4);
  EXPECT_EQ(log.turns[0].numerics_id, "avx2");
}

TEST_F(SealedSessionsTest, ADamagedLogIsDataLoss) {
  AddWithTurn("one", TurnFinish::kStop);
  for (const char* damage : {"UPDATE chunks SET text = 'fore' WHERE start = 3",
                             "UPDATE chunks SET hash = x'00'", "DELETE FROM chunks WHERE start = 3",
                             "UPDATE turns SET answer = 'fore'", "DELETE FROM turns"}) {
    ASSERT_TRUE(db_.Execute("SAVEPOINT whole").ok());
    Damage(damage);
    SessionLogData log;
    const absl::Status read = logs_->Read(sessions_->Find("one", kNow).value(), &log);
    EXPECT_TRUE(absl::IsDataLoss(read)) << damage << ": " << read;
    EXPECT_TRUE(absl::StrContains(read.message(), "'one'")) << read;
    ASSERT_TRUE(db_.Execute("ROLLBACK TO whole; RELEASE whole").ok());
  }
  Read("one");
}

TEST_F(SealedSessionsTest, ATurnIsReopenedOnlyByItsRequest) {
  SessionRow row = AddWithTurn("one", TurnFinish::kCancelled);
  EXPECT_FALSE(*logs_->ReopenTurn(&row, Read("one"), "another"));
  EXPECT_TRUE(*logs_->ReopenTurn(&row, Read("one"), "r"));
  ASSERT_TRUE(logs_->AddOutput(&row, {5}, "five").ok());
  ASSERT_TRUE(logs_->UpdateRunningTurn(&row, TurnFinish::kStop, "").ok());
  ASSERT_TRUE(sessions_->Save(&row).ok());
  EXPECT_EQ(Read("one").turns.at(0).response, "fourfive");
  EXPECT_FALSE(*logs_->ReopenTurn(&row, Read("one"), "r"));
}

TEST_F(SealedSessionsTest, ATurnCanCutTheLogInsideAChunk) {
  SessionRow row = AddWithTurn("one", TurnFinish::kStop);
  ASSERT_TRUE(logs_->StartTurn(&row, {.request_id = "r2", .kept = 2, .input_ids = {9}}).ok());
  ASSERT_TRUE(sessions_->Save(&row).ok());
  EXPECT_EQ(Read("one").token_ids, (std::vector<int32_t>{1, 2, 9}));
}

TEST_F(SealedSessionsTest, LogsAreCopiedAndCleared) {
  AddWithTurn("one", TurnFinish::kStop);
  SessionRow copy = Add("two");
  ASSERT_TRUE(logs_->AddLog(&copy, Read("one")).ok());
  ASSERT_TRUE(sessions_->Save(&copy).ok());
  EXPECT_EQ(Read("two").turns, Read("one").turns);
  ASSERT_TRUE(logs_->Clear(&copy).ok());
  ASSERT_TRUE(sessions_->Save(&copy).ok());
  EXPECT_TRUE(Read("two").token_ids.empty());
  EXPECT_EQ(Read("one").token_ids.size(), 4);
}

TEST_F(SealedSessionsTest, SealsALogOfAnOlderVersion) {
  AddWithTurn("one", TurnFinish::kStop);
  Damage("UPDATE sessions SET log_hash = x'', turns_hash = x'', seal = x''");
  Damage("UPDATE chunks SET hash = x''");
  Damage("UPDATE turns SET hash = x''");
  SessionRow row = sessions_->FindUnchecked("one", kNow).value();
  ASSERT_TRUE(logs_->Seal(&row).ok());
  ASSERT_TRUE(sessions_->Save(&row).ok());
  EXPECT_EQ(Read("one").turns.at(0).response, "four");
  Damage("DELETE FROM turns");
  EXPECT_TRUE(absl::IsDataLoss(logs_->Seal(&row)));
}

}  // namespace
}  // namespace tidepool::service
