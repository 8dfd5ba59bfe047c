#include "service/store/chunk_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/store/memory_db.h"

namespace tidepool::service {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Hash128 kHash = {.high = 7, .low = 8};

class ChunkTableTest : public testing::Test {
 protected:
  ChunkTableTest() {
    for (const int64_t start : {0, 2, 4}) {
      Write(1, {.start = start, .tokens = "tokens", .text = absl::StrCat("<", start, ">")});
    }
    Write(2, {.start = 0, .tokens = "", .text = "other"});
  }

  void Write(int64_t session, ChunkRow chunk) {
    chunk.hash = kHash;
    EXPECT_TRUE(table_.Write(session, chunk).ok());
  }

  static std::vector<std::string> Texts(RowCursor<ChunkRow> chunks) {
    std::vector<std::string> texts;
    while (true) {
      const auto chunk = chunks.Next();
      EXPECT_TRUE(chunk.ok()) << chunk.status();
      if (!chunk.ok() || !chunk->has_value()) return texts;
      texts.push_back((*chunk)->text);
    }
  }

  SqliteDb db_ = MakeMemoryDb();
  ChunkTable table_ = ChunkTable::Open(db_).value();
};

TEST_F(ChunkTableTest, ReadsOneSessionInTheOrderOfItsLog) {
  EXPECT_THAT(Texts(table_.All(1)), ElementsAre("<0>", "<2>", "<4>"));
  EXPECT_THAT(Texts(table_.From(1, 2)), ElementsAre("<2>", "<4>"));
  EXPECT_THAT(Texts(table_.All(3)), IsEmpty());
  EXPECT_EQ(*table_.TextFrom(1, 2), "<2><4>");
  EXPECT_EQ(*table_.TextFrom(3, 0), "");
}

TEST_F(ChunkTableTest, FindsChunksByTheirStart) {
  const ChunkRow chunk = **table_.At(1, 2);
  EXPECT_EQ(chunk.start, 2);
  EXPECT_EQ(chunk.tokens, "tokens");
  EXPECT_EQ(chunk.hash, kHash);
  EXPECT_FALSE(table_.At(1, 3)->has_value());
  EXPECT_EQ((**table_.LastBefore(1, 4)).start, 2);
  EXPECT_EQ((**table_.LastBefore(1, 100)).start, 4);
  EXPECT_FALSE(table_.LastBefore(1, 0)->has_value());
}

TEST_F(ChunkTableTest, WritesReplaceAChunkOfTheSameStart) {
  Write(1, {.start = 2, .tokens = "", .text = "new"});
  EXPECT_THAT(Texts(table_.All(1)), ElementsAre("<0>", "new", "<4>"));
  const Hash128 other = {.high = 9, .low = 9};
  ASSERT_TRUE(table_.WriteHash(1, 2, other).ok());
  EXPECT_EQ((**table_.At(1, 2)).hash, other);
  EXPECT_EQ((**table_.At(1, 4)).hash, kHash);
}

TEST_F(ChunkTableTest, ClearsAndDeletesTheEndOfALog) {
  ASSERT_TRUE(table_.ClearTextFrom(1, 2).ok());
  EXPECT_THAT(Texts(table_.All(1)), ElementsAre("<0>", "", ""));
  ASSERT_TRUE(table_.DeleteFrom(1, 4).ok());
  EXPECT_THAT(Texts(table_.All(1)), ElementsAre("<0>", ""));
  ASSERT_TRUE(table_.DeleteAll(1).ok());
  EXPECT_THAT(Texts(table_.All(1)), IsEmpty());
  EXPECT_THAT(Texts(table_.All(2)), ElementsAre("other"));
}

TEST_F(ChunkTableTest, AColumnOfAnotherClassHasNoHash) {
  ASSERT_TRUE(db_.Execute("UPDATE chunks SET text = CAST(text AS BLOB) WHERE start = 2").ok());
  EXPECT_EQ((**table_.At(1, 2)).hash, Hash128());
  EXPECT_EQ((**table_.At(1, 0)).hash, kHash);
}

}  // namespace
}  // namespace tidepool::service
