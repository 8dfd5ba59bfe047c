#include "engine/kv/kv_disk_index.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/backend.h"

namespace tidepool::engine {
namespace {

using Growth = KvDiskIndex::Growth;

std::vector<int32_t> TokensOf(int name) {
  return std::vector<int32_t>(kernels::kKvBlockTokens, name);
}
BlockKey KeyOf(int name) { return {{static_cast<uint64_t>(name), 7}, 0}; }

// An index of four slots. Small numbers identify the blocks.
class KvDiskIndexTest : public testing::Test {
 protected:
  KvDiskIndexTest() { index_.EndRestore(); }

  int32_t Begin(int name, Growth growth = Growth::kAllowed) {
    const int32_t slot = index_.Take(growth);
    if (slot != kNoBlock) index_.BeginWrite(slot, KeyOf(name), TokensOf(name), /*newer=*/-1);
    return slot;
  }
  int32_t Store(int name) {
    const int32_t slot = Begin(name);
    index_.EndWrite(slot, /*checksum=*/99);
    return slot;
  }
  bool Has(int name) const { return index_.Find(KeyOf(name), TokensOf(name)) != kNoBlock; }
  std::vector<int32_t> Stale() {
    std::vector<int32_t> slots;
    for (const auto& [slot, entry] : index_.TakeStale(100)) slots.push_back(slot);
    return slots;
  }

  KvDiskIndex index_{4};
};

TEST_F(KvDiskIndexTest, FindsBlocksFromTheBeginningOfTheirWrite) {
  const int32_t slot = Begin(1);
  EXPECT_EQ(slot, 0);
  EXPECT_EQ(index_.Find(KeyOf(1)), slot);
  EXPECT_TRUE(index_.IsWriting(slot));
  EXPECT_FALSE(index_.InFile(slot));
  EXPECT_EQ(index_.stored(), 0);
  index_.EndWrite(slot, 99);
  EXPECT_TRUE(index_.IsStored(slot));
  EXPECT_TRUE(index_.InFile(slot));
  EXPECT_EQ(index_.entry(slot).checksum, 99u);
  EXPECT_EQ(index_.stored(), 1);
  EXPECT_EQ(index_.Find(KeyOf(1), TokensOf(2)), kNoBlock);  // other tokens with the same hash
}

TEST_F(KvDiskIndexTest, AFailedWriteLeavesNothing) {
  const int32_t slot = Begin(1);
  index_.FailWrite(slot);
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Begin(2), slot);
}

TEST_F(KvDiskIndexTest, ReusesTheLeastRecentlyUsedSlot) {
  for (int name = 1; name <= 4; ++name) Store(name);
  index_.NoteUse(index_.Find(KeyOf(1)), -1);
  EXPECT_EQ(Begin(5), 1);  // the slot of block 2
  EXPECT_FALSE(Has(2));
  EXPECT_TRUE(Has(1));
}

TEST_F(KvDiskIndexTest, ReusesASlotInsteadOfGrowthIfThatIsForbidden) {
  const int32_t slot = Store(1);
  EXPECT_EQ(Begin(2, Growth::kForbidden), slot);
  EXPECT_EQ(Begin(3, Growth::kForbidden), kNoBlock);  // all slots are being written
  EXPECT_NE(Begin(3), kNoBlock);
}

TEST_F(KvDiskIndexTest, ReadersKeepASlot) {
  for (int name = 1; name <= 4; ++name) Store(name);
  index_.BeginRead(0);
  EXPECT_EQ(Begin(5), 1);
  index_.Forget(0);  // block 0 is damaged
  EXPECT_FALSE(Has(1));
  EXPECT_EQ(Begin(6), 2);
  index_.EndRead(0);
  EXPECT_EQ(Begin(7), 0);
}

TEST_F(KvDiskIndexTest, UsesMakeEntriesStaleOnce) {
  const int32_t first = Store(1);
  const int32_t second = Store(2);
  EXPECT_FALSE(index_.has_stale());
  EXPECT_TRUE(index_.NoteUse(first, -1));  // the first stale entry
  EXPECT_FALSE(index_.NoteUse(first, -1));
  EXPECT_FALSE(index_.NoteUse(second, -1));
  EXPECT_FALSE(index_.NoteUse(Begin(3), -1));  // being written: has a new entry anyway
  const std::vector<KvDiskIndex::StaleEntry> entries = index_.TakeStale(100);
  ASSERT_EQ(entries.size(), 2);
  EXPECT_FALSE(index_.has_stale());
  index_.ReturnStale(entries);
  EXPECT_EQ(Stale().size(), 2);
}

TEST_F(KvDiskIndexTest, AReplacedBlockIsNotStale) {
  for (int name = 1; name <= 4; ++name) Store(name);
  for (int name = 1; name <= 4; ++name) index_.NoteUse(index_.Find(KeyOf(name)), -1);
  EXPECT_EQ(Begin(5), 0);
  EXPECT_EQ(Stale(), (std::vector<int32_t>{3, 2, 1}));
}

TEST_F(KvDiskIndexTest, RestoresTheOrderOfUse) {
  KvDiskIndex restored(4);
  restored.Restore(0, {.key = KeyOf(0), .stamp = 30});
  restored.Restore(1, {.key = KeyOf(1), .stamp = 10});
  restored.Restore(2, {.key = KeyOf(2), .stamp = 20});
  // A second slot has the same content, with a later stamp. The first slot keeps the content.
  restored.Restore(3, {.key = KeyOf(0), .stamp = 40});
  restored.EndRestore();
  EXPECT_EQ(restored.stored(), 3);
  EXPECT_EQ(restored.Find(KeyOf(0)), 0);
  EXPECT_EQ(restored.Take(Growth::kAllowed), 3);  // free
  EXPECT_EQ(restored.Take(Growth::kAllowed), 1);
  EXPECT_EQ(restored.Take(Growth::kAllowed), 2);
}

TEST_F(KvDiskIndexTest, BlocksOfALastSpillKeepTheirOrder) {
  for (int name = 1; name <= 3; ++name) Store(name);
  // The blocks were written in the reverse order of their use.
  for (int name = 1; name <= 3; ++name) index_.NoteUse(index_.Find(KeyOf(name)), name - 1);
  EXPECT_GT(index_.entry(0).stamp, index_.entry(1).stamp);
  EXPECT_GT(index_.entry(1).stamp, index_.entry(2).stamp);
}

}  // namespace
}  // namespace tidepool::engine
