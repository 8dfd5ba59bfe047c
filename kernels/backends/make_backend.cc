#include "kernels/backends/make_backend.h"

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"

namespace tidepool::kernels {

absl::StatusOr<std::unique_ptr<KernelBackend>> MakeBackend(const BackendOptions& options) {
  if (options.device == Device::kCuda) return MakeCudaBackend({.precision = options.precision});
  return MakeCpuBackend(
      {.threads = options.threads, .precision = options.precision, .isa = options.isa});
}

}  // namespace tidepool::kernels
