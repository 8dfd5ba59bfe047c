// Runs the op case table on a GPU and compares each result with the CPU backend's, bit by bit.
// Exits with 77 if there is no GPU.
#include <cstdio>
#include <memory>
#include <string>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/op_cases.h"

namespace tidepool::kernels {
namespace {

constexpr int kNoGpu = 77;

void ExpectCpuBits(Precision precision) {
  const auto device = MakeCudaBackend({.precision = precision});
  const auto cpu = MakeCpuBackend({.threads = 4, .precision = precision});
  ASSERT_TRUE(device.ok() && cpu.ok());
  ExpectSameBits(**cpu, **device);
  EXPECT_TRUE((*device)->Sync().ok()) << (*device)->Sync();
}

TEST(CudaOpsCheck, FastOpsHaveTheBitsOfTheCpu) { ExpectCpuBits(Precision::kFast); }
TEST(CudaOpsCheck, ExactOpsHaveTheBitsOfTheCpu) { ExpectCpuBits(Precision::kExact); }

}  // namespace
}  // namespace tidepool::kernels

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const auto backend = tidepool::kernels::MakeCudaBackend({});
  if (!backend.ok()) {
    std::printf("cuda_ops_check: %s\n", std::string(backend.status().message()).c_str());
    return tidepool::kernels::kNoGpu;
  }
  std::printf("cuda_ops_check: %s\n", (*backend)->Description().c_str());
  return RUN_ALL_TESTS();
}
