#include "tests/engine/model/test_backend.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/kernels/protected_backend.h"

namespace tidepool::engine {

namespace {

TestBackend FromEnvironment() {
  const char* const value = std::getenv("TIDEPOOL_TEST_BACKEND");
  const absl::string_view name = value == nullptr ? "cpu" : value;
  CHECK(name == "cpu" || name == "protected") << "TIDEPOOL_TEST_BACKEND is " << name;
  return name == "cpu" ? TestBackend::kCpu : TestBackend::kProtected;
}

}  // namespace

std::unique_ptr<kernels::KernelBackend> MakeTestBackend(const TestBackendOptions& options) {
  const TestBackend chosen =
      options.backend == TestBackend::kFromEnvironment ? FromEnvironment() : options.backend;
  if (chosen == TestBackend::kProtected) {
    return kernels::MakeProtectedBackend(
        {.threads = options.threads, .precision = options.precision});
  }
  auto backend = kernels::MakeCpuBackend(
      {.threads = options.threads, .precision = options.precision, .isa = options.isa});
  CHECK_OK(backend.status());
  return *std::move(backend);
}

kernels::Device TestDevice() {
  return FromEnvironment() == TestBackend::kCpu ? kernels::Device::kCpu : kernels::Device::kCuda;
}

absl::StatusOr<std::unique_ptr<kernels::KernelBackend>> MakeLoaderBackend(
    const kernels::BackendOptions& options) {
  return MakeTestBackend({.backend = options.device == kernels::Device::kCpu
                                         ? TestBackend::kCpu
                                         : TestBackend::kProtected,
                          .threads = options.threads,
                          .precision = options.precision,
                          .isa = options.isa});
}

}  // namespace tidepool::engine
