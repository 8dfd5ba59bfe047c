#include "moe/device/device_pool.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "moe/device/device_buffers.h"
#include "tests/moe/device/device_rig.h"

namespace tidepool::moe {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kBytes = RandomExperts::kRecordBytes;

std::vector<int32_t> TakeAll(DevicePool* pool) {
  std::vector<int32_t> taken;
  for (int32_t buffer = pool->Take(); buffer >= 0; buffer = pool->Take()) taken.push_back(buffer);
  return taken;
}

TEST(DevicePoolTest, GivesTheLowestBuffersAndNoMoreThanTheLimit) {
  const auto device = kernels::MakeProtectedBackend({});
  auto pool = DevicePool::Create({.buffer_bytes = kBytes, .limit = 5, .chunk_bytes = 2 * kBytes},
                                 device->memory());
  ASSERT_TRUE(pool.ok());
  EXPECT_THAT(TakeAll(&*pool), ElementsAre(0, 1, 2, 3, 4));
  std::set<std::byte*> addresses;
  for (int32_t buffer = 0; buffer < 5; ++buffer) addresses.insert(pool->data(buffer));
  EXPECT_EQ(addresses.size(), 5u);
  for (const int32_t buffer : {3, 1, 4}) pool->GiveBack(buffer);
  EXPECT_EQ(pool->Take(), 1);
  EXPECT_EQ(pool->Take(), 3);
  EXPECT_EQ(pool->in_use(), 4);
  EXPECT_EQ(pool->available(), 1);
}

TEST(DevicePoolTest, PrefersSettledBuffers) {
  const auto device = kernels::MakeProtectedBackend({});
  auto pool = DevicePool::Create({.buffer_bytes = kBytes, .limit = 5, .chunk_bytes = 2 * kBytes},
                                 device->memory());
  ASSERT_TRUE(pool.ok());
  for (int32_t buffer = 0; buffer < 4; ++buffer) EXPECT_EQ(pool->Take(), buffer);
  EXPECT_TRUE(pool->IsSettled(2));
  for (const int32_t buffer : {2, 0}) pool->GiveBack(buffer);
  EXPECT_FALSE(pool->IsSettled(0));
  EXPECT_EQ(pool->Take(), 4);  // was never used
  EXPECT_TRUE(pool->IsSettled(4));
  EXPECT_EQ(pool->TakeLowest(), 0);
  EXPECT_FALSE(pool->IsSettled(0));
  pool->GiveBack(3);
  EXPECT_TRUE(pool->Settle());
  EXPECT_FALSE(pool->Settle());
  for (const int32_t buffer : {0, 1}) pool->GiveBack(buffer);
  EXPECT_THAT(TakeAll(&*pool), ElementsAre(2, 3, 0, 1));
  EXPECT_TRUE(pool->IsSettled(3));
  EXPECT_FALSE(pool->IsSettled(1));
  pool->GiveBack(0);
  ASSERT_TRUE(pool->SetLimit(7).ok());
  EXPECT_THAT(TakeAll(&*pool), ElementsAre(5, 6, 0));
  for (const int32_t buffer : {6, 5, 4, 3}) pool->GiveBack(buffer);
  ASSERT_TRUE(pool->SetLimit(4).ok());
  EXPECT_THAT(TakeAll(&*pool), ElementsAre(3));
  EXPECT_FALSE(pool->IsSettled(3));
}

TEST(DevicePoolTest, TheMemoryFollowsTheLimitInChunks) {
  const auto device = kernels::MakeProtectedBackend({.memory_bytes = 9 * kBytes});
  auto pool = DevicePool::Create({.buffer_bytes = kBytes, .limit = 5, .chunk_bytes = 3 * kBytes},
                                 device->memory());
  ASSERT_TRUE(pool.ok());
  const auto free = [&] { return static_cast<int64_t>(*device->memory()->available()) / kBytes; };
  EXPECT_EQ(free(), 4);
  ASSERT_TRUE(pool->SetLimit(8).ok());
  EXPECT_EQ(free(), 1);
  // Chunks end at 3, 5 and 8.
  EXPECT_EQ(pool->SizeFor(4), 5);
  ASSERT_TRUE(pool->SetLimit(4).ok());
  EXPECT_EQ(free(), 4);
  EXPECT_EQ(TakeAll(&*pool).size(), 4u);
  EXPECT_EQ(pool->SetLimit(10).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->limit(), 4);
  EXPECT_EQ(free(), 4);
  EXPECT_EQ(pool->Take(), -1);
  ASSERT_TRUE(pool->SetLimit(9).ok());
  EXPECT_EQ(free(), 0);
  EXPECT_EQ(TakeAll(&*pool).size(), 5u);
}

// The experts that remain are moved out of the chunks that are freed.
TEST(DeviceBuffersTest, ExpertsKeepTheirBytesWhenThePoolShrinks) {
  const RandomExperts model;
  DeviceRig rig(model, {});
  auto pool = DevicePool::Create({.buffer_bytes = kBytes, .limit = 8, .chunk_bytes = 2 * kBytes},
                                 rig.device->memory());
  ASSERT_TRUE(pool.ok());
  DeviceBuffers buffers(&model.records(), *std::move(pool));
  const auto matches = [&](int64_t expert) {
    return rig.Matches(
        0, {.expert = static_cast<int32_t>(expert), .weights = buffers.weights(expert)});
  };
  for (int64_t expert = 0; expert < 8; ++expert) {
    const int32_t buffer = buffers.Take();
    rig.device->CopyIn({model.record(0, static_cast<int32_t>(expert)), kBytes},
                       buffers.pool().data(buffer));
    buffers.Assign(expert, buffer, 0);
    buffers.Hold(expert, Holder::kPlacement);
  }
  for (const int64_t expert : {0, 2, 3, 5, 6}) buffers.Drop(expert, Holder::kPlacement);
  ASSERT_TRUE(buffers.SetLimit(3, rig.device.get()).ok());
  for (const int64_t expert : {1, 4, 7}) {
    EXPECT_TRUE(buffers.IsReady(expert));
    EXPECT_TRUE(matches(expert)) << "expert " << expert;
  }
  EXPECT_EQ(buffers.Take(), -1);
  EXPECT_EQ(buffers.pool().SizeFor(3), 4);
}

}  // namespace
}  // namespace tidepool::moe
