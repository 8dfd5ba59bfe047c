#include "service/store/turn_table.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/service/store/memory_db.h"

namespace tidepool::service {
namespace {

constexpr Hash128 kHash = {.high = 7, .low = 8};

class TurnTableTest : public testing::Test {
 protected:
  TurnTableTest() {
    for (int number = 0; number < 3; ++number) {
      EXPECT_TRUE(table_.Insert(1, number, Turn(number)).ok());
    }
    EXPECT_TRUE(table_.Insert(2, 0, Turn(9)).ok());
  }

  static TurnRow Turn(int number) {
    return {.turn = {.request_id = absl::StrCat("request-", number),
                     .start = 1,
                     .output_start = 2,
                     .end = 3,
                     .messages = {},
                     .response = "answer",
                     .finish = TurnFinish::kStop,
                     .body_digest = "digest",
                     .numerics_id = "avx2"},
            .messages = "[]",
            .hash = kHash};
  }

  int CountOf(int64_t session, int64_t limit) {
    int count = 0;
    RowCursor<TurnRow> turns = table_.First(session, limit);
    while (true) {
      const auto turn = turns.Next();
      EXPECT_TRUE(turn.ok()) << turn.status();
      if (!turn.ok() || !turn->has_value()) return count;
      EXPECT_EQ((*turn)->turn, Turn(session == 1 ? count : 9).turn);
      ++count;
    }
  }

  SqliteDb db_ = MakeMemoryDb();
  TurnTable table_ = TurnTable::Open(db_).value();
};

TEST_F(TurnTableTest, ReadsTheFirstTurnsOfOneSession) {
  EXPECT_EQ(CountOf(1, 2), 2);
  EXPECT_EQ(CountOf(1, 100), 3);
  EXPECT_EQ(CountOf(2, 100), 1);
  EXPECT_EQ(CountOf(3, 100), 0);
}

TEST_F(TurnTableTest, ReadsBackTheWrittenRow) {
  const TurnRow turn = **table_.At(1, 1);
  EXPECT_EQ(turn.turn, Turn(1).turn);
  EXPECT_EQ(turn.messages, "[]");
  EXPECT_EQ(turn.hash, kHash);
  EXPECT_FALSE(table_.At(1, 3)->has_value());
}

TEST_F(TurnTableTest, UpdatesWriteTheColumnsThatCanChange) {
  TurnRow changed = Turn(1);
  changed.turn.end = 30;
  changed.turn.response = "another answer";
  changed.turn.finish = TurnFinish::kCancelled;
  changed.turn.numerics_id = "avx512";
  changed.hash = {.high = 1, .low = 1};
  ASSERT_TRUE(table_.Update(1, 1, changed).ok());
  EXPECT_EQ((**table_.At(1, 1)).turn, changed.turn);
  EXPECT_EQ((**table_.At(1, 1)).hash, changed.hash);
  EXPECT_EQ((**table_.At(1, 0)).turn, Turn(0).turn);
  ASSERT_TRUE(table_.WriteHash(1, 1, kHash).ok());
  EXPECT_EQ((**table_.At(1, 1)).hash, kHash);
}

TEST_F(TurnTableTest, DeletesTheTurnsOfOneSession) {
  ASSERT_TRUE(table_.DeleteAll(1).ok());
  EXPECT_EQ(CountOf(1, 100), 0);
  EXPECT_EQ(CountOf(2, 100), 1);
}

TEST_F(TurnTableTest, AColumnOfAnotherClassHasNoHash) {
  ASSERT_TRUE(db_.Execute("UPDATE turns SET answer = CAST(answer AS BLOB) WHERE turn = 1").ok());
  EXPECT_EQ((**table_.At(1, 1)).hash, Hash128());
  EXPECT_EQ((**table_.At(1, 0)).hash, kHash);
}

}  // namespace
}  // namespace tidepool::service
