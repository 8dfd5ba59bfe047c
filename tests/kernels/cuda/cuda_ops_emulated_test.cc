// On the emulated device, every op of the CUDA backend computes the same bits as the CPU backend.
#include <cstdint>
#include <memory>

#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "tests/kernels/cuda/emulated_stream.h"
#include "tests/kernels/op_cases.h"

namespace tidepool::kernels {
namespace {

void ExpectCpuBits(Precision precision, uint64_t seed) {
  cuda::SetEmulationSeed(seed);
  const auto device = MakeCudaBackend({.precision = precision});
  const auto cpu = MakeCpuBackend({.threads = 1, .precision = precision});
  ASSERT_TRUE(device.ok() && cpu.ok());
  ExpectSameBits(**cpu, **device);
  EXPECT_TRUE((*device)->Sync().ok()) << (*device)->Sync();
}

TEST(CudaOpsEmulatedTest, FastOpsHaveTheBitsOfTheCpu) { ExpectCpuBits(Precision::kFast, 1); }
TEST(CudaOpsEmulatedTest, ExactOpsHaveTheBitsOfTheCpu) { ExpectCpuBits(Precision::kExact, 2); }

}  // namespace
}  // namespace tidepool::kernels
