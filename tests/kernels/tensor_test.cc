#include "kernels/tensor.h"

#include <cstdint>
#include <utility>

#include "gtest/gtest.h"

namespace tidepool::kernels {
namespace {

TEST(TensorTest, TypesHaveGgufBlocks) {
  EXPECT_EQ(DTypeName(DType::kQ4_1), "Q4_1");
  EXPECT_EQ(BlockElements(DType::kBF16), 1);
  EXPECT_EQ(BlockBytes(DType::kBF16), 2);
  EXPECT_EQ(BlockElements(DType::kQ8_0), 32);
  EXPECT_EQ(BlockBytes(DType::kQ8_0), 34);
  EXPECT_EQ(BlockBytes(DType::kQ4_0), 18);
  EXPECT_EQ(BlockBytes(DType::kQ4_1), 20);
}

TEST(TensorTest, BufferIsAlignedAndMoves) {
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{5} << 20}) {
    Buffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % kAlignment, 0u);
    buffer.data()[bytes - 1] = std::byte{7};
    const Buffer moved = std::move(buffer);
    EXPECT_EQ(moved.data()[bytes - 1], std::byte{7});
  }
  EXPECT_EQ(Buffer(0).data(), nullptr);
}

// Counts the allocated bytes. At most 100 bytes can be allocated at the same time.
class SmallMemory final : public Memory {
 public:
  std::byte* Allocate(size_t bytes) override {
    if (bytes > 100) return nullptr;
    ++allocated;
    return HostMemory()->Allocate(bytes);
  }
  void Free(std::byte* data) override {
    --allocated;
    HostMemory()->Free(data);
  }
  bool on_host() const override { return true; }

  int allocated = 0;
};

TEST(TensorTest, BufferAndArenaUseTheMemoryThatTheyAreGiven) {
  SmallMemory memory;
  {
    Buffer buffer(64, &memory);
    Buffer other;
    EXPECT_EQ(memory.allocated, 1);
    other = std::move(buffer);
    EXPECT_EQ(memory.allocated, 1);
    const Arena arena(100, &memory);
    EXPECT_EQ(memory.allocated, 2);
    const Buffer empty(0, &memory);
    EXPECT_EQ(memory.allocated, 2);
  }
  EXPECT_EQ(memory.allocated, 0);
}

TEST(TensorDeathTest, FullMemoryEndsTheProcess) {
  SmallMemory memory;
  EXPECT_DEATH(Buffer(101, &memory), "out of memory for a buffer of 101 bytes");
  EXPECT_DEATH(Buffer(SIZE_MAX), "out of memory");
}

TEST(TensorTest, ArenaGivesAlignedMemoryAndTakesItBack) {
  Arena arena(1024);
  float* first = arena.Allocate<float>(3);
  const size_t mark = arena.used();
  float* second = arena.Allocate<float>(5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second) % kAlignment, 0u);
  EXPECT_GE(second, first + 3);
  arena.ResetTo(mark);
  EXPECT_EQ(arena.Allocate<float>(1), second);
  EXPECT_EQ(arena.high_water(), kAlignment + 5 * sizeof(float));
  arena.Reset();
  EXPECT_EQ(arena.used(), 0u);
  EXPECT_NE(arena.Allocate<std::byte>(1024), nullptr);
}

TEST(TensorTest, ReserveCountsWithoutAllocating) {
  Arena arena(256);
  arena.Allocate<std::byte>(64);
  arena.Reserve(100);
  EXPECT_EQ(arena.used(), 64u);
  EXPECT_EQ(arena.high_water(), 164u);
  arena.Reserve(10);
  EXPECT_EQ(arena.high_water(), 164u);
  arena.Reserve(192);
  EXPECT_EQ(arena.high_water(), arena.capacity());
}

TEST(TensorTest, ACountingArenaCountsLikeARealOne) {
  Arena counting = Arena::Counting();
  Arena real(4096);
  for (Arena* arena : {&counting, &real}) {
    arena->AllocateMatrix(3, 5);
    const size_t mark = arena->used();
    arena->AllocateMatrix(10, 20);
    arena->ResetTo(mark);
    arena->Reserve(70);
    arena->Allocate<int8_t>(1);
  }
  EXPECT_EQ(counting.used(), real.used());
  EXPECT_EQ(counting.high_water(), real.high_water());
  // This is more memory than any machine has.
  EXPECT_EQ(
      reinterpret_cast<uintptr_t>(counting.AllocateMatrix(1 << 30, 1 << 20).data) % kAlignment, 0u);
}

TEST(TensorDeathTest, FullArenaNamesItsSize) {
  Arena arena(256);
  arena.Allocate<std::byte>(200);
  EXPECT_DEATH(arena.Allocate<std::byte>(1), "the arena of 256 bytes is full");
  EXPECT_DEATH(arena.Reserve(57), "the arena of 256 bytes is full");
}

TEST(TensorTest, ViewsStepByStride) {
  float data[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const MatrixView view(data, 3, 2, 4);
  EXPECT_EQ(view.Row(2)[1], 9);
  const ConstMatrixView part = view.RowRange(1, 2);
  EXPECT_EQ(part.rows, 2);
  EXPECT_EQ(part.Row(1)[0], 8);
}

}  // namespace
}  // namespace tidepool::kernels
