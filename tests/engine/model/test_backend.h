// The backend of tests that run once for each kind of memory.
#ifndef TIDEPOOL_TESTS_ENGINE_MODEL_TEST_BACKEND_H_
#define TIDEPOOL_TESTS_ENGINE_MODEL_TEST_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/backends/make_backend.h"
#include "kernels/device.h"

namespace tidepool::engine {

enum class TestBackend : uint8_t {
  kFromEnvironment,  // $TIDEPOOL_TEST_BACKEND is "cpu" or "protected"; unset: cpu
  kCpu,
  kProtected,  // memory that host code cannot touch, and ops that run late (protected_backend.h)
};

struct TestBackendOptions {
  TestBackend backend = TestBackend::kFromEnvironment;
  int threads = 1;
  kernels::Precision precision = kernels::Precision::kFast;
  kernels::Isa isa = kernels::Isa::kBest;  // only for the CPU's backend
};

// Ends the process if the backend cannot be made.
std::unique_ptr<kernels::KernelBackend> MakeTestBackend(const TestBackendOptions& options);

// For LoadOptions: a device if $TIDEPOOL_TEST_BACKEND is "protected", else the CPU.
kernels::Device TestDevice();
// For LoadOptions::make_backend. Like kernels::MakeBackend, but a device is a protected backend.
absl::StatusOr<std::unique_ptr<kernels::KernelBackend>> MakeLoaderBackend(
    const kernels::BackendOptions& options);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_TESTS_ENGINE_MODEL_TEST_BACKEND_H_
