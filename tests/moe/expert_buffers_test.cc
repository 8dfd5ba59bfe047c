#include "moe/expert_buffers.h"

#include <cstring>
#include <utility>

#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "tests/moe/tiered_rig.h"

namespace tidepool::moe {
namespace {

constexpr int32_t kBuffers = 2;
constexpr int64_t kExpert = kExperts + 3;  // expert 3 of the second layer

class ExpertBuffersTest : public testing::Test {
 protected:
  ExpertBuffersTest()
      : buffers_(&master_.records(),
                 *ExpertPool::Create(master_.records().largest_bytes(), kBuffers, kBuffers)) {}

  int64_t free() const { return kBuffers - buffers_.pool().in_use(); }
  RecordRead BeginRead(int64_t expert) { return buffers_.BeginRead(expert, buffers_.Take()); }
  void Fill(int64_t expert) {
    const RecordRead read = BeginRead(expert);
    std::memcpy(read.into, master_.bytes().data() + read.offset, read.bytes);
    buffers_.EndRead(expert);
  }

  const Master master_;
  ExpertBuffers buffers_;
};

TEST_F(ExpertBuffersTest, AReadNamesTheRecordOfTheExpert) {
  const ExpertRecord& record = master_.records().layers[1][3];
  buffers_.Hold(kExpert, Holder::kRequest);
  const RecordRead read = BeginRead(kExpert);
  EXPECT_EQ(read.ticket, kExpert);
  EXPECT_EQ(read.offset, record.offset);
  EXPECT_EQ(read.bytes, record.layout.bytes());
  EXPECT_EQ(read.hash, record.hash);
  EXPECT_FALSE(buffers_.IsAbsent(kExpert));
  EXPECT_FALSE(buffers_.IsReady(kExpert));
  std::memcpy(read.into, master_.bytes().data() + read.offset, read.bytes);
  buffers_.EndRead(kExpert);
  EXPECT_TRUE(buffers_.IsReady(kExpert));
  EXPECT_TRUE(master_.Matches(1, {.expert = 3, .weights = buffers_.weights(kExpert)}));
}

TEST_F(ExpertBuffersTest, TheBufferReturnsWithTheLastHolder) {
  buffers_.Hold(kExpert, Holder::kPlacement);
  buffers_.Hold(kExpert, Holder::kRequest);
  Fill(kExpert);
  EXPECT_EQ(free(), 1);
  buffers_.Drop(kExpert, Holder::kPlacement);
  EXPECT_FALSE(buffers_.IsHeld(kExpert, Holder::kPlacement));
  EXPECT_TRUE(buffers_.IsHeld(kExpert, Holder::kRequest));
  EXPECT_EQ(free(), 1);
  buffers_.Drop(kExpert, Holder::kRequest);
  EXPECT_EQ(free(), 2);
  EXPECT_TRUE(buffers_.IsAbsent(kExpert));
  buffers_.Drop(kExpert, Holder::kRequest);  // not held: nothing changes
  EXPECT_EQ(free(), 2);
}

TEST_F(ExpertBuffersTest, AReadInFlightKeepsTheBuffer) {
  buffers_.Hold(kExpert, Holder::kPrefetch);
  BeginRead(kExpert);
  buffers_.Drop(kExpert, Holder::kPrefetch);
  EXPECT_EQ(free(), 1);
  buffers_.EndRead(kExpert);  // no holder needs the expert any longer
  EXPECT_EQ(free(), 2);
  EXPECT_TRUE(buffers_.IsAbsent(kExpert));
}

TEST_F(ExpertBuffersTest, VacateTakesTheBufferFromItsHolders) {
  buffers_.Hold(kExpert, Holder::kRequest);
  Fill(kExpert);
  buffers_.Vacate(kExpert);
  EXPECT_EQ(free(), 2);
  EXPECT_TRUE(buffers_.IsAbsent(kExpert));
  EXPECT_TRUE(buffers_.IsHeld(kExpert, Holder::kRequest));
  Fill(kExpert);
  EXPECT_TRUE(buffers_.IsReady(kExpert));
}

TEST_F(ExpertBuffersTest, EachCopyKeepsTheBuffer) {
  buffers_.Hold(kExpert, Holder::kRequest);
  Fill(kExpert);
  const std::byte* const record = buffers_.BeginCopy(kExpert);
  EXPECT_EQ(record, buffers_.weights(kExpert)->gate.data);
  EXPECT_EQ(buffers_.BeginCopy(kExpert), record);
  buffers_.Drop(kExpert, Holder::kRequest);
  EXPECT_TRUE(buffers_.IsReady(kExpert));
  buffers_.EndCopy(kExpert);
  EXPECT_TRUE(buffers_.IsHeld(kExpert, Holder::kCopy));
  EXPECT_TRUE(buffers_.has_copies());
  EXPECT_EQ(free(), 1);
  buffers_.EndCopy(kExpert);
  EXPECT_FALSE(buffers_.has_copies());
  EXPECT_EQ(free(), 2);
}

TEST_F(ExpertBuffersTest, TakesNoMoreBuffersThanTheLimit) {
  for (int64_t expert = 0; expert < kBuffers; ++expert) {
    buffers_.Hold(expert, Holder::kPlacement);
    Fill(expert);
  }
  EXPECT_EQ(buffers_.Take(), -1);
  buffers_.Drop(0, Holder::kPlacement);
  CHECK_OK(buffers_.SetLimit(1));
  EXPECT_EQ(buffers_.Take(), -1);
  CHECK_OK(buffers_.SetLimit(2));
  EXPECT_GE(buffers_.Take(), 0);
}

}  // namespace
}  // namespace tidepool::moe
