// The protected backend's copies of pinned memory end late and in any order. The backend detects
// callers that do not wait for them.
#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/protected_backend.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

using testing::HasSubstr;

constexpr int kFloats = 64;  // of each slot

std::byte* SlotOf(const Operand<float>& slots, int slot) {
  return reinterpret_cast<std::byte*>(slots.data() + slot * kFloats);
}

std::vector<float> Slot(const std::vector<float>& values, int slot) {
  return {values.begin() + slot * kFloats, values.begin() + (slot + 1) * kFloats};
}

// Asks for the time of each copy again and again, until all have ended. Returns the copies in the
// order in which they ended.
std::vector<CopyTicket> WaitForAll(KernelBackend& backend, std::vector<CopyTicket> copies) {
  std::vector<CopyTicket> ended;
  while (!copies.empty()) {
    for (size_t i = 0; i < copies.size();) {
      const absl::StatusOr<std::optional<absl::Duration>> time = backend.CopyTime(copies[i]);
      EXPECT_TRUE(time.ok()) << time.status();
      if (!time.ok()) return ended;
      if (!time->has_value()) {
        ++i;
        continue;
      }
      EXPECT_GT(**time, absl::ZeroDuration());
      ended.push_back(copies[i]);
      copies.erase(copies.begin() + static_cast<int64_t>(i));
    }
  }
  return ended;
}

TEST(ProtectedCopiesTest, OpsBeforeACopySeeTheOldBytes) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto backend = MakeProtectedBackend({.seed = seed});
    const std::vector<float> before = Noise(1).Floats(kFloats);
    const std::vector<float> after = Noise(2).Floats(kFloats);
    const PinnedFloats source(*backend, after);
    const MatrixOperand slot(*backend, before, 1, kFloats);
    const MatrixOperand out(*backend, std::vector<float>(2 * kFloats), 2, kFloats);
    backend->Add(slot.view(), out.view().RowRange(0, 1));
    const CopyTicket copy =
        backend->BeginCopyIn(source.Bytes(0, kFloats), SlotOf(slot, 0), backend->MarkOps());
    backend->Scale(out.view(), 2);
    backend->AwaitCopy(copy);
    backend->Add(slot.view(), out.view().RowRange(1, 1));
    const std::vector<float> result = out.Read();
    for (int i = 0; i < kFloats; ++i) {
      EXPECT_EQ(result[i], 2 * before[i]);
      EXPECT_EQ(result[kFloats + i], after[i]);
    }
    WaitForAll(*backend, {copy});
  }
}

// So a caller that marks the ops too early gets wrong results.
TEST(ProtectedCopiesTest, ACopyMayRunBeforeOpsAfterItsMark) {
  int early = 0;
  int late = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const auto backend = MakeProtectedBackend({.seed = seed});
    const std::vector<float> before = Noise(1).Floats(kFloats);
    const std::vector<float> after = Noise(2).Floats(kFloats);
    const PinnedFloats source(*backend, after);
    const MatrixOperand slot(*backend, before, 1, kFloats);
    const MatrixOperand out(*backend, std::vector<float>(kFloats), 1, kFloats);
    const OpMark mark = backend->MarkOps();
    for (int i = 0; i < 6; ++i) backend->Scale(out.view(), 2);
    backend->Add(slot.view(), out.view());
    const CopyTicket copy = backend->BeginCopyIn(source.Bytes(0, kFloats), SlotOf(slot, 0), mark);
    backend->AwaitCopy(copy);
    const std::vector<float> result = out.Read();
    EXPECT_THAT(result, testing::AnyOf(before, after));
    ++(result == after ? early : late);
    EXPECT_EQ(slot.Read(), after);
    WaitForAll(*backend, {copy});
  }
  EXPECT_GT(early, 2);
  EXPECT_GT(late, 2);
}

TEST(ProtectedCopiesTest, CopiesEndLateAndInAnyOrder) {
  int late = 0;
  int reordered = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    constexpr int kSlots = 6;
    const auto backend = MakeProtectedBackend({.seed = seed});
    const std::vector<float> values = Noise(3).Floats(kSlots * kFloats);
    const PinnedFloats source(*backend, values);
    const Operand<float> slots(*backend, std::vector<float>(kSlots * kFloats));
    std::vector<CopyTicket> copies;
    for (int i = 0; i < kSlots; ++i) {
      copies.push_back(backend->BeginCopyIn(source.Bytes(i * kFloats, kFloats), SlotOf(slots, i),
                                            backend->MarkOps()));
      EXPECT_EQ(copies.back(), i + 1);
    }
    ASSERT_TRUE(backend->Sync().ok());
    const absl::StatusOr<std::optional<absl::Duration>> first = backend->CopyTime(copies[0]);
    ASSERT_TRUE(first.ok());
    if (!first->has_value()) {
      ++late;
      if (WaitForAll(*backend, copies) != copies) ++reordered;
    } else {
      WaitForAll(*backend, {copies.begin() + 1, copies.end()});
    }
    EXPECT_EQ(slots.Read(), values);
  }
  EXPECT_GT(late, 5);
  EXPECT_GT(reordered, 3);
}

TEST(ProtectedCopiesTest, CopiesToTheSamePlaceRunInOrder) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const auto backend = MakeProtectedBackend({.seed = seed});
    const std::vector<float> values = Noise(4).Floats(3 * kFloats);
    const PinnedFloats source(*backend, values);
    const Operand<float> slot(*backend, std::vector<float>(kFloats));
    std::vector<CopyTicket> copies;
    for (int i = 0; i < 3; ++i) {
      copies.push_back(backend->BeginCopyIn(source.Bytes(i * kFloats, kFloats), SlotOf(slot, 0),
                                            backend->MarkOps()));
    }
    for (const CopyTicket copy : {copies[2], copies[0], copies[1]}) backend->AwaitCopy(copy);
    EXPECT_EQ(slot.Read(), Slot(values, 2));
    WaitForAll(*backend, copies);
  }
}

// Host code may free the target before the copy has ended.
TEST(ProtectedCopiesTest, CopiesRunAfterTheirTargetWasFreed) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const auto backend = MakeProtectedBackend({.seed = seed});
    const PinnedFloats source(*backend, Noise(5).Floats(kFloats));
    CopyTicket copy = 0;
    {
      const Operand<float> slot(*backend, std::vector<float>(kFloats));
      copy = backend->BeginCopyIn(source.Bytes(0, kFloats), SlotOf(slot, 0), backend->MarkOps());
    }
    ASSERT_TRUE(backend->Sync().ok());
    WaitForAll(*backend, {copy});
  }
}

TEST(ProtectedCopiesTest, AFailedCopyGivesItsErrorToAllLaterCalls) {
  for (const bool awaited : {false, true}) {
    const auto backend = MakeProtectedBackend({.failing_copy = 2});
    const PinnedFloats source(*backend, Noise(6).Floats(2 * kFloats));
    const Operand<float> slots(*backend, std::vector<float>(2 * kFloats));
    const CopyTicket good =
        backend->BeginCopyIn(source.Bytes(0, kFloats), SlotOf(slots, 0), backend->MarkOps());
    EXPECT_EQ(WaitForAll(*backend, {good}), std::vector<CopyTicket>({good}));
    const CopyTicket bad =
        backend->BeginCopyIn(source.Bytes(0, kFloats), SlotOf(slots, 1), backend->MarkOps());
    ASSERT_TRUE(backend->Sync().ok());
    if (awaited) {
      backend->AwaitCopy(bad);
      EXPECT_EQ(backend->Sync().message(), "copy 2 of the device failed");
    }
    absl::StatusOr<std::optional<absl::Duration>> time = std::nullopt;
    while (time.ok() && !time->has_value()) time = backend->CopyTime(bad);
    EXPECT_EQ(time.status().code(), absl::StatusCode::kInternal);
    EXPECT_EQ(time.status().message(), "copy 2 of the device failed");
    EXPECT_EQ(backend->Sync(), time.status());
  }
}

TEST(ProtectedCopiesTest, NoCopyRunsAfterAnOpHasFailed) {
  const auto backend = MakeProtectedBackend({.failing_op = 1});
  const PinnedFloats source(*backend, Noise(7).Floats(kFloats));
  const MatrixOperand slot(*backend, std::vector<float>(kFloats), 1, kFloats);
  backend->Scale(slot.view(), 2);
  const CopyTicket copy =
      backend->BeginCopyIn(source.Bytes(0, kFloats), SlotOf(slot, 0), backend->MarkOps());
  absl::StatusOr<std::optional<absl::Duration>> time = std::nullopt;
  while (time.ok() && !time->has_value()) time = backend->CopyTime(copy);
  EXPECT_THAT(std::string(time.status().message()), HasSubstr("op 1"));
}

TEST(ProtectedCopiesTest, PinHostFailsAboveItsLimit) {
  const auto backend = MakeProtectedBackend({.pinned_bytes = size_t{1} << 20});
  const PinnedFloats most(*backend, std::vector<float>(200 << 10));
  std::vector<std::byte> bytes(2 << 20);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  std::byte* const data = bytes.data() + (page - first % page) % page;
  EXPECT_EQ(backend->PinHost({data, size_t{512} << 10}).code(),
            absl::StatusCode::kResourceExhausted);
  const absl::Span<std::byte> part(data, size_t{128} << 10);
  EXPECT_TRUE(backend->PinHost(part).ok());
  backend->UnpinHost(part);
}

class ProtectedCopiesDeathTest : public testing::Test {
 protected:
  ProtectedCopiesDeathTest()
      : backend_(MakeProtectedBackend({.seed = 3})),
        source_(*backend_, Noise(8).Floats(kFloats)),
        slot_(*backend_, std::vector<float>(kFloats), 1, kFloats) {}

  CopyTicket Begin() {
    return backend_->BeginCopyIn(source_.Bytes(0, kFloats), SlotOf(slot_, 0), backend_->MarkOps());
  }

  const std::unique_ptr<KernelBackend> backend_;
  const PinnedFloats source_;
  const MatrixOperand slot_;
};

TEST_F(ProtectedCopiesDeathTest, SourcesMustBePinned) {
  const std::vector<std::byte> host(100);
  EXPECT_DEATH(backend_->BeginCopyIn(host, SlotOf(slot_, 0), backend_->MarkOps()),
               "source of a copy is not pinned");
}

TEST_F(ProtectedCopiesDeathTest, SourcesMustNotChange) {
  EXPECT_DEATH(
      {
        const CopyTicket copy = Begin();
        source_.data()[5] = 1;
        WaitForAll(*backend_, {copy});
      },
      "source of copy 1 has changed");
}

TEST_F(ProtectedCopiesDeathTest, SourcesMustStayPinned) {
  EXPECT_DEATH(
      {
        const PinnedFloats other(*backend_, Noise(9).Floats(kFloats));
        backend_->BeginCopyIn(other.Bytes(0, kFloats), SlotOf(slot_, 0), backend_->MarkOps());
      },
      "unpinned before copy 1 has ended");
}

TEST_F(ProtectedCopiesDeathTest, TargetsMustBeAwaited) {
  EXPECT_DEATH(
      {
        Begin();
        backend_->Scale(slot_.view(), 2);
      },
      "target of copy 1, which was not awaited");
}

TEST_F(ProtectedCopiesDeathTest, TargetsMustBeInTheBackendsMemory) {
  std::vector<std::byte> host(100);
  EXPECT_DEATH(backend_->BeginCopyIn(source_.Bytes(0, 10), host.data(), backend_->MarkOps()),
               "target of a copy is not in the backend's memory");
}

TEST_F(ProtectedCopiesDeathTest, TimesAreReadOnce) {
  const CopyTicket copy = Begin();
  WaitForAll(*backend_, {copy});
  backend_->AwaitCopy(copy);
  EXPECT_DEATH((void)backend_->CopyTime(copy), "its time was read");
}

TEST_F(ProtectedCopiesDeathTest, MemoryMustBeUnpinned) {
  EXPECT_DEATH(
      {
        auto backend = MakeProtectedBackend({});
        const PinnedFloats pinned(*backend, {1});
        backend.reset();
      },
      "1 ranges of host memory are still pinned");
}

}  // namespace
}  // namespace tidepool::kernels
