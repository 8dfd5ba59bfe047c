// The protected backend computes the CPU's bits, and detects host code that touches its memory.
#include "tests/kernels/protected_backend.h"

#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

TEST(ProtectedBackendTest, OpsHaveTheBitsOfTheCpu) {
  for (const Precision precision : {Precision::kFast, Precision::kExact}) {
    const auto cpu = *MakeCpuBackend({.precision = precision});
    for (const uint64_t seed : {1, 2}) {
      const auto backend =
          MakeProtectedBackend({.threads = 2, .precision = precision, .seed = seed});
      ExpectSameBits(*cpu, *backend);
    }
  }
}

TEST(ProtectedBackendTest, CopiesRoundTrip) {
  const auto backend = MakeProtectedBackend({});
  EXPECT_FALSE(backend->memory()->on_host());
  const std::vector<float> values = Noise(1).Floats(1000);
  const Operand<float> from(*backend, values);
  const Operand<float> to(*backend, std::vector<float>(1000));
  backend->CopyWithin(reinterpret_cast<const std::byte*>(from.data()),
                      reinterpret_cast<std::byte*>(to.data()), 1000 * sizeof(float));
  EXPECT_EQ(to.Read(), values);
}

TEST(ProtectedBackendTest, OpsRunAfterTheirArgumentsAreGone) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto backend = MakeProtectedBackend({.seed = seed});
    const std::vector<float> values = Noise(1).Floats(4 * 32);
    const MatrixOperand x(*backend, values, 4, 32);
    const MatrixOperand out(*backend, std::vector<float>(3 * 32), 3, 32);
    {
      std::vector<int64_t> rows = {3, 0, 2};
      backend->GatherRows(x.view(), rows, out.view());
      rows = {0, 0, 0};
    }
    backend->Scale(out.view(), 2);
    const std::vector<float> result = out.Read();
    for (int i = 0; i < 32; ++i) EXPECT_EQ(result[i], 2 * values[3 * 32 + i]);
  }
}

TEST(ProtectedBackendTest, NewMemoryIsNotZero) {
  const auto backend = MakeProtectedBackend({});
  const Buffer buffer(100 * sizeof(float), backend->memory());
  for (const float value :
       CopiedOut(*backend, reinterpret_cast<const float*>(buffer.data()), 100)) {
    EXPECT_TRUE(std::isnan(value));
  }
}

TEST(ProtectedBackendTest, AfterAFailedOpAllCallsReturnItsError) {
  const auto backend = MakeProtectedBackend({.failing_op = 2});
  const MatrixOperand x(*backend, {1, 2}, 1, 2);  // copying is op 0
  backend->Scale(x.view(), 2);
  EXPECT_EQ(x.Read(), std::vector<float>({2, 4}));
  backend->Scale(x.view(), 3);
  backend->Scale(x.view(), 5);
  EXPECT_EQ(backend->Sync().code(), absl::StatusCode::kInternal);
  std::byte out[8] = {};
  EXPECT_EQ(
      backend->CopyOut(reinterpret_cast<const std::byte*>(x.data()), absl::MakeSpan(out)).code(),
      absl::StatusCode::kInternal);
}

TEST(ProtectedBackendDeathTest, HostCodeCannotTouchItsMemory) {
  const auto backend = MakeProtectedBackend({});
  const Operand<float> x(*backend, Noise(1).Floats(100));
  ASSERT_TRUE(backend->Sync().ok());
  volatile float* const data = x.data();
  EXPECT_DEATH({ (void)data[5]; }, "");
  EXPECT_DEATH({ data[5] = 1; }, "");
}

TEST(ProtectedBackendDeathTest, OperandsMustBeInItsMemory) {
  const auto backend = MakeProtectedBackend({});
  const MatrixOperand x(*backend, Noise(1).Floats(64), 2, 32);
  std::vector<float> host(64);
  EXPECT_DEATH(backend->Add({host.data(), 2, 32}, x.view()), "not in the backend's memory");
  EXPECT_DEATH(backend->Zero({x.data(), 3, 32}), "not in the backend's memory");
  MatrixView freed;
  {
    const MatrixOperand y(*backend, Noise(1).Floats(64), 2, 32);
    freed = y.view();
  }
  EXPECT_DEATH(backend->Zero(freed), "not in the backend's memory");
}

TEST(ProtectedBackendDeathTest, MustOutliveItsMemory) {
  EXPECT_DEATH(
      {
        auto backend = MakeProtectedBackend({});
        const Buffer buffer(100, backend->memory());
        backend.reset();
      },
      "1 allocations of a backend that no longer exists");
}

}  // namespace
}  // namespace tidepool::kernels
