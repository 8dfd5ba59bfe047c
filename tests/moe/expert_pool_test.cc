#include "moe/expert_pool.h"

#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/base/check.h"
#include "kernels/tensor.h"
#include "tests/kernels/protected_backend.h"

namespace tidepool::moe {
namespace {

constexpr int64_t kBytes = 3 * 4096;

// Returns the protection of the page at `address` in the kernel, such as "rw-p". "" if it is not
// mapped.
std::string ProtectionOf(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    size_t dash = 0;
    const uintptr_t begin = std::stoull(line, &dash, 16);
    size_t space = 0;
    const uintptr_t end = std::stoull(line.substr(dash + 1), &space, 16);
    if (begin <= at && at < end) return line.substr(dash + 1 + space + 1, 4);
  }
  return "";
}

TEST(MappedMemoryTest, CommittedPartsAreUsable) {
  auto memory = MappedMemory::Reserve(int64_t{1} << 30);
  ASSERT_TRUE(memory.ok()) << memory.status();
  std::byte* const at = memory->data() + (1 << 20);
  EXPECT_EQ(ProtectionOf(at), "---p");
  ASSERT_TRUE(memory->Commit(at, 1 << 16).ok());
  EXPECT_EQ(ProtectionOf(at), "rw-p");
  EXPECT_EQ(ProtectionOf(at + (1 << 16)), "---p");
  std::memset(at, 7, 1 << 16);
  memory->Release(at, 1 << 16);
  EXPECT_EQ(ProtectionOf(at), "---p");
  ASSERT_TRUE(memory->Commit(at, 1 << 16).ok());
  EXPECT_EQ(at[100], std::byte{0});
}

// Address space for buffers above the limit is not committed.
TEST(ExpertPoolTest, CommitsOnlyMemoryWithinTheLimit) {
  auto pool = ExpertPool::Create(kBytes, 4, 20);
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(ProtectionOf(pool->data(3)), "rw-p");
  EXPECT_EQ(ProtectionOf(pool->data(4)), "---p");
  ASSERT_TRUE(pool->SetLimit(9).ok());
  EXPECT_EQ(ProtectionOf(pool->data(8)), "rw-p");
  EXPECT_EQ(ProtectionOf(pool->data(9)), "---p");
  ASSERT_TRUE(pool->SetLimit(2).ok());
  int usable = 0;
  for (int buffer = 0; buffer < 20; ++buffer) {
    usable += ProtectionOf(pool->data(buffer)) == "rw-p";
  }
  EXPECT_EQ(usable, 2);
}

// Buffers in use are distinct and usable while the limit changes.
TEST(ExpertPoolTest, BuffersKeepTheirBytesWhileLimitsChange) {
  constexpr int kMax = 30;
  auto pool = ExpertPool::Create(kBytes, 5, kMax);
  ASSERT_TRUE(pool.ok());
  std::mt19937 random(4);
  std::vector<int32_t> used;
  for (int i = 0; i < 5000; ++i) {
    switch (random() % 3) {
      case 0:
        if (random() % 10 != 0) break;
        ASSERT_TRUE(pool->SetLimit(static_cast<int32_t>(1 + random() % kMax)).ok());
        break;
      case 1: {
        const int32_t buffer = pool->Take();
        EXPECT_EQ(buffer >= 0, static_cast<int32_t>(used.size()) < pool->limit());
        if (buffer < 0) break;
        std::memset(pool->data(buffer), buffer + 1, kBytes);
        used.push_back(buffer);
        break;
      }
      case 2:
        if (used.empty()) break;
        std::swap(used[random() % used.size()], used.back());
        pool->GiveBack(used.back());
        used.pop_back();
        break;
    }
    EXPECT_EQ(pool->in_use(), static_cast<int32_t>(used.size()));
    EXPECT_EQ(std::set<int32_t>(used.begin(), used.end()).size(), used.size());
    for (const int32_t buffer : used) {
      ASSERT_EQ(pool->data(buffer)[0], static_cast<std::byte>(buffer + 1));
      ASSERT_EQ(pool->data(buffer)[kBytes - 1], static_cast<std::byte>(buffer + 1));
    }
  }
}

// Copies from all buffers end before this returns.
void CopyBuffers(kernels::KernelBackend& backend, const ExpertPool& pool, int32_t buffers) {
  const kernels::Buffer slot(kBytes, backend.memory());
  for (int32_t buffer = 0; buffer < buffers; ++buffer) {
    std::memset(pool.data(buffer), buffer + 1, kBytes);
    const kernels::CopyTicket copy = backend.BeginCopyIn(
        {pool.data(buffer), static_cast<size_t>(kBytes)}, slot.data(), backend.MarkOps());
    backend.AwaitCopy(copy);
    std::vector<std::byte> out(kBytes);
    ASSERT_TRUE(backend.CopyOut(slot.data(), absl::MakeSpan(out)).ok());
    EXPECT_EQ(out[kBytes - 1], static_cast<std::byte>(buffer + 1));
  }
}

TEST(PinnedPoolTest, BuffersWithinTheLimitArePinned) {
  const auto backend = kernels::MakeProtectedBackend({});
  auto pool = ExpertPool::Create(kBytes, 3, 8, backend.get());
  ASSERT_TRUE(pool.ok()) << pool.status();
  CopyBuffers(*backend, *pool, 3);
  ASSERT_TRUE(pool->SetLimit(5).ok());
  ExpertPool moved = *std::move(pool);
  CopyBuffers(*backend, moved, 5);
  // The backend ends the process if memory is still pinned when it is destroyed.
}

TEST(PinnedPoolTest, BuffersThatLoseTheirMemoryAreUnpinned) {
  const auto backend = kernels::MakeProtectedBackend({.pinned_bytes = 6 * kBytes});
  auto pool = ExpertPool::Create(kBytes, 6, 20, backend.get());
  ASSERT_TRUE(pool.ok()) << pool.status();
  std::vector<int32_t> used;
  for (int i = 0; i < 6; ++i) used.push_back(pool->Take());
  ASSERT_TRUE(pool->SetLimit(1).ok());
  for (const int32_t buffer : used) pool->GiveBack(buffer);
  ASSERT_TRUE(pool->SetLimit(6).ok());
  CopyBuffers(*backend, *pool, 1);
}

TEST(PinnedPoolTest, MemoryThatCannotBePinnedIsAnError) {
  const auto backend = kernels::MakeProtectedBackend({.pinned_bytes = 6 * kBytes});
  const absl::Status created = ExpertPool::Create(kBytes, 7, 20, backend.get()).status();
  EXPECT_EQ(created.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(created.message()),
              testing::AllOf(testing::HasSubstr("than the 73728 bytes that are pinned now"),
                             testing::HasSubstr("ulimit -l")));
  auto pool = ExpertPool::Create(kBytes, 4, 20, backend.get());
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(pool->SetLimit(7).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(pool->limit(), 4);
  EXPECT_TRUE(pool->SetLimit(6).ok());
}

}  // namespace
}  // namespace tidepool::moe
