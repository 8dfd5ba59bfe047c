// The emulated device detects mistakes of kernels, and computes the same results as a GPU.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/runtime.h"
#include "tests/kernels/cuda/emulated_stream.h"

namespace tidepool::kernels::cuda {
namespace {

using testing::HasSubstr;

class EmulatedDeviceTest : public testing::Test {
 protected:
  EmulatedDeviceTest() : stream_(*MakeStream(0)) {}
  ~EmulatedDeviceTest() override { DeleteStream(stream_); }

  // Runs a kernel and returns its error.
  template <typename... P>
  std::string Run(void (*kernel)(P...), Grid grid, int threads, int shared_bytes,
                  std::type_identity_t<P>... arguments) {
    Launch(stream_, kernel, grid, threads, shared_bytes, arguments...);
    return std::string(Synchronize(stream_).message());
  }

  Stream* stream_;
};

TIDEPOOL_KERNEL Reverse(int* data) {
  const Shared<int> buffer = SharedArray<int>(0, 64);
  const int n = BlockThreads();
  int* mine = data + BlockX() * n;
  buffer[ThreadIndex()] = mine[ThreadIndex()];
  BlockBarrier();
  mine[ThreadIndex()] = buffer[n - 1 - ThreadIndex()];
}

TEST_F(EmulatedDeviceTest, RunsAllBlocksAndThreads) {
  std::vector<int> data(64 * 7);
  for (int i = 0; i < 64 * 7; ++i) data[i] = i;
  EXPECT_EQ(Run(Reverse, {7}, 64, 256, data.data()), "");
  for (int i = 0; i < 64 * 7; ++i) EXPECT_EQ(data[i], i / 64 * 64 + 63 - i % 64);
}

TEST_F(EmulatedDeviceTest, WorkWaitsForSynchronize) {
  std::vector<int> data(64, 1);
  data[0] = 5;
  Launch(stream_, Reverse, {}, 64, 256, data.data());
  EXPECT_EQ(data[0], 5);
  EXPECT_TRUE(Synchronize(stream_).ok());
  EXPECT_EQ(data[63], 5);
}

TIDEPOOL_KERNEL ReverseWithoutBarrier(int* data) {
  const Shared<int> buffer = SharedArray<int>(0, 64);
  buffer[ThreadIndex()] = data[ThreadIndex()];
  WarpBarrier();
  data[ThreadIndex()] = buffer[63 - ThreadIndex()];
}

TIDEPOOL_KERNEL WriteTwice(int) { SharedArray<int>(0, 1)[0] = ThreadIndex(); }

// Writes of different bytes of a word are not a race. If `racy`, threads write after other threads
// have read, without a barrier in between.
TIDEPOOL_KERNEL WriteAfterRead(int racy) {
  const Shared<int8_t> bytes = SharedArray<int8_t>(0, 64);
  bytes[ThreadIndex()] = 1;
  BlockBarrier();
  const int sum = bytes[0] + bytes[63];
  if (racy == 0) BlockBarrier();
  bytes[ThreadIndex()] = static_cast<int8_t>(sum);
}

TEST_F(EmulatedDeviceTest, FindsRaces) {
  std::vector<int> data(64);
  EXPECT_THAT(Run(ReverseWithoutBarrier, {}, 64, 256, data.data()),
              testing::AnyOf(HasSubstr("race"), HasSubstr("before it is written")));
}
TEST_F(EmulatedDeviceTest, FindsDoubleWrites) {
  EXPECT_THAT(Run(WriteTwice, {}, 32, 4, 0), HasSubstr("race"));
}
TEST_F(EmulatedDeviceTest, FindsWritesAfterReads) {
  EXPECT_EQ(Run(WriteAfterRead, {}, 64, 64, 0), "");
  EXPECT_THAT(Run(WriteAfterRead, {}, 64, 64, 1), HasSubstr("race"));
}

// A warp may order its own accesses.
TIDEPOOL_KERNEL ReverseInWarp(int* data) {
  const Shared<int> buffer = SharedArray<int>(0, 64);
  buffer[ThreadIndex()] = data[ThreadIndex()];
  WarpBarrier();
  data[ThreadIndex()] = buffer[WarpIndex() * 32 + 31 - LaneIndex()];
}

TEST_F(EmulatedDeviceTest, WarpBarrierOrdersAWarp) {
  std::vector<int> data(64);
  data[0] = 9;
  EXPECT_EQ(Run(ReverseInWarp, {}, 64, 256, data.data()), "");
  EXPECT_EQ(data[31], 9);
}

TIDEPOOL_KERNEL ReadUnwritten(int* out) { out[ThreadIndex()] = SharedArray<int>(0, 32)[3]; }
TIDEPOOL_KERNEL WriteOutside(int at) { SharedArray<int>(0, 8)[at] = 1; }
TIDEPOOL_KERNEL SkipBarrier(int) {
  if (ThreadIndex() < 40) BlockBarrier();
}
TIDEPOOL_KERNEL SkipShuffle(int* out) {
  if (ThreadIndex() != 5) out[0] = ShuffleXor(1, 1);
}

TEST_F(EmulatedDeviceTest, FindsReadsOfUnwrittenMemory) {
  int out[32];
  EXPECT_THAT(Run(ReadUnwritten, {}, 32, 128, out), HasSubstr("before it is written"));
}
TEST_F(EmulatedDeviceTest, FindsAccessesOutsideOfAnArray) {
  EXPECT_THAT(Run(WriteOutside, {}, 32, 128, 8), HasSubstr("shared element 8 of 8"));
}
TEST_F(EmulatedDeviceTest, FindsArraysOutsideOfSharedMemory) {
  EXPECT_THAT(Run(WriteOutside, {}, 32, 16, 7), HasSubstr("of 16 bytes of shared memory"));
}
TEST_F(EmulatedDeviceTest, FindsBarriersThatSomeThreadsDoNotReach) {
  EXPECT_THAT(Run(SkipBarrier, {}, 64, 0, 0), HasSubstr("40 wait at a barrier"));
}
TEST_F(EmulatedDeviceTest, FindsShufflesThatSomeLanesDoNotReach) {
  int out[1];
  EXPECT_THAT(Run(SkipShuffle, {}, 32, 0, out), HasSubstr("31 lanes of warp 0 wait"));
}
TEST_F(EmulatedDeviceTest, FindsImpossibleLaunches) {
  EXPECT_THAT(Run(SkipBarrier, {}, 33, 0, 0), HasSubstr("33 threads"));
}

TEST_F(EmulatedDeviceTest, ErrorsAreKept) {
  EXPECT_THAT(Run(WriteTwice, {}, 32, 4, 0), HasSubstr("race"));
  std::vector<int> data(64, 3);
  EXPECT_THAT(Run(Reverse, {}, 64, 256, data.data()), HasSubstr("race"));
}

// Streams run in any order, except for work that waits for an event.
TEST_F(EmulatedDeviceTest, WorkAfterAnEventOfAnotherStreamRunsAfterIt) {
  Stream* const other = *MakeStream(0);
  Event* const event = MakeEvent(0, EventKind::kTimed);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SetEmulationSeed(seed);
    const std::array<std::byte, 2> from = {std::byte{7}, std::byte{9}};
    std::array<std::byte, 3> to = {};
    CopyPinnedIn(stream_, &from[0], &to[0], 1);
    Record(stream_, event);
    CopyPinnedIn(stream_, &from[1], &to[0], 1);
    WaitOnDevice(other, event);
    CopyPinnedIn(other, &to[0], &to[1], 1);
    Record(other, event);
    WaitOnDevice(stream_, event);
    CopyPinnedIn(stream_, &to[1], &to[2], 1);
    EXPECT_TRUE(Synchronize(seed % 2 == 0 ? stream_ : other).ok());
    EXPECT_TRUE(Synchronize(stream_).ok());
    EXPECT_NE(to[1], std::byte{0});
    EXPECT_EQ(to[2], to[1]);
    EXPECT_TRUE(HasHappened(other, event));
  }
  DeleteEvent(event);
  DeleteStream(other);
}

TEST_F(EmulatedDeviceTest, AStreamThatWaitsForAFailedOneFails) {
  Stream* const other = *MakeStream(0);
  Event* const event = MakeEvent(0, EventKind::kUntimed);
  Launch(stream_, WriteTwice, {}, 32, 4, 0);
  Record(stream_, event);
  WaitOnDevice(other, event);
  EXPECT_THAT(std::string(Synchronize(other).message()), HasSubstr("race"));
  EXPECT_FALSE(HasHappened(other, event));
  DeleteEvent(event);
  DeleteStream(other);
}

TIDEPOOL_KERNEL Exchange(uint32_t* out) {
  const int lane = LaneIndex();
  out[lane] = Shuffle(lane, 3);
  out[32 + lane] = ShuffleXor(lane, 5);
  out[64 + lane] = (AllLanes(lane < 32) ? 1 : 0) + (AllLanes(lane != 9) ? 2 : 0);
}

TEST_F(EmulatedDeviceTest, LanesExchangeValues) {
  std::vector<uint32_t> out(96);
  EXPECT_EQ(Run(Exchange, {}, 32, 0, out.data()), "");
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], 3);
    EXPECT_EQ(out[32 + i], i ^ 5);
    EXPECT_EQ(out[64 + i], 1);
  }
}

TEST(EmulatedArithmeticTest, BytesAreAsOnAGpu) {
  EXPECT_EQ(Dot4(0x01ff80fe, 0x02ff037f, 10), 10 + 2 + 1 - 128 * 3 - 2 * 127);
  EXPECT_EQ(BytePermute(0x33221100, 0x77665544, 0x7405), 0x77440055);
  EXPECT_EQ(BytePermute(0x33221100, 0x77665544, 0xffff9888), 0x11000000);
}

// Runs one op through the backend, with the backend's memory and copies.
TEST(EmulatedBackendTest, AddsRows) {
  const auto backend = MakeCudaBackend({});
  ASSERT_TRUE(backend.ok()) << backend.status();
  EXPECT_EQ((*backend)->Description(), "cuda emulated");
  EXPECT_FALSE((*backend)->memory()->on_host());
  std::vector<float> x(3 * 300), y(3 * 300);
  for (int i = 0; i < 900; ++i) x[i] = y[i] = static_cast<float>(i);
  Buffer buffer(2 * 900 * sizeof(float), (*backend)->memory());
  const auto bytes = [](std::vector<float>& v) {
    return absl::Span<std::byte>(reinterpret_cast<std::byte*>(v.data()), 900 * sizeof(float));
  };
  float* first = reinterpret_cast<float*>(buffer.data());
  (*backend)->CopyIn(bytes(x), buffer.data());
  (*backend)->CopyIn(bytes(y), buffer.data() + 900 * sizeof(float));
  (*backend)->Add({first, 3, 300}, {first + 900, 3, 300});
  ASSERT_TRUE((*backend)->CopyOut(buffer.data() + 900 * sizeof(float), bytes(y)).ok());
  for (int i = 0; i < 900; ++i) EXPECT_EQ(y[i], 2.0f * static_cast<float>(i));
}

class EmulatedCopiesTest : public testing::Test {
 protected:
  EmulatedCopiesTest()
      : backend_(*MakeCudaBackend({})),
        source_(kCopies * kBytes, std::byte{3}),
        slots_(kCopies * kBytes, backend_->memory()) {
    EXPECT_TRUE(backend_->PinHost(absl::MakeSpan(source_)).ok());
  }
  ~EmulatedCopiesTest() override {
    EXPECT_TRUE(backend_->Sync().ok());
    backend_->UnpinHost(absl::MakeSpan(source_));
  }

  CopyTicket Begin(int slot) {
    return backend_->BeginCopyIn(absl::MakeConstSpan(source_).subspan(slot * kBytes, kBytes),
                                 slots_.data() + slot * kBytes, backend_->MarkOps());
  }

  static constexpr int kCopies = 3;
  static constexpr int kBytes = 100;
  const std::unique_ptr<KernelBackend> backend_;
  std::vector<std::byte> source_;
  const Buffer slots_;
};

TEST_F(EmulatedCopiesTest, CopiesEndBeforeAndAfterOtherWork) {
  int before = 0;
  int after = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SetEmulationSeed(seed);
    std::vector<CopyTicket> copies;
    for (int slot = 0; slot < kCopies; ++slot) copies.push_back(Begin(slot));
    EXPECT_EQ(copies.back(), static_cast<CopyTicket>(seed * kCopies));
    EXPECT_TRUE(backend_->Sync().ok());
    for (const CopyTicket copy : copies) {
      absl::StatusOr<std::optional<absl::Duration>> time = backend_->CopyTime(copy);
      if (copy == copies[0]) ++(time.ok() && time->has_value() ? before : after);
      while (time.ok() && !time->has_value()) time = backend_->CopyTime(copy);
      ASSERT_TRUE(time.ok()) << time.status();
      EXPECT_GT(**time, absl::ZeroDuration());
      backend_->AwaitCopy(copy);  // does nothing, because the copy has ended
    }
  }
  EXPECT_GT(before, 3);
  EXPECT_GT(after, 3);
  std::vector<std::byte> out(slots_.size());
  EXPECT_TRUE(backend_->CopyOut(slots_.data(), absl::MakeSpan(out)).ok());
  EXPECT_EQ(out, source_);
}

// Ops before the mark read the old bytes. Ops after it may read the new ones.
TEST_F(EmulatedCopiesTest, CopiesRunAfterTheOpsBeforeTheirMark) {
  int early = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SetEmulationSeed(seed);
    const Buffer out(2 * kBytes, backend_->memory());
    const std::vector<std::byte> old(kBytes, std::byte{1});
    backend_->CopyIn(old, slots_.data());
    backend_->CopyWithin(slots_.data(), out.data(), kBytes);
    const OpMark mark = backend_->MarkOps();
    // More marks than the backend has events.
    for (int i = 0; i < static_cast<int>(seed % 20); ++i) backend_->MarkOps();
    backend_->CopyWithin(slots_.data(), out.data() + kBytes, kBytes);
    const CopyTicket copy =
        backend_->BeginCopyIn(absl::MakeConstSpan(source_).first(kBytes), slots_.data(), mark);
    // An older mark after a newer one.
    backend_->AwaitCopy(backend_->BeginCopyIn(absl::MakeConstSpan(source_).first(kBytes),
                                              slots_.data() + kBytes, mark - 1));
    absl::StatusOr<std::optional<absl::Duration>> time = backend_->CopyTime(copy);
    if (seed % 2 == 0) {
      EXPECT_TRUE(backend_->Sync().ok());
    }
    while (time.ok() && !time->has_value()) time = backend_->CopyTime(copy);
    ASSERT_TRUE(time.ok()) << time.status();
    std::vector<std::byte> read(2 * kBytes);
    EXPECT_TRUE(backend_->CopyOut(out.data(), absl::MakeSpan(read)).ok());
    for (int i = 0; i < kBytes; ++i) EXPECT_EQ(read[i], std::byte{1});
    if (read[kBytes] == std::byte{3}) ++early;
  }
  EXPECT_GT(early, 3);
}

TEST_F(EmulatedCopiesTest, CopiesWhoseTimeIsNotReadEndWithTheBackend) {
  for (int slot = 0; slot < kCopies; ++slot) backend_->AwaitCopy(Begin(slot));
}

}  // namespace
}  // namespace tidepool::kernels::cuda
