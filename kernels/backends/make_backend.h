// MakeBackend: the one function that chooses between the implementations of KernelBackend.
#ifndef TIDEPOOL_KERNELS_BACKENDS_MAKE_BACKEND_H_
#define TIDEPOOL_KERNELS_BACKENDS_MAKE_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/device.h"

namespace tidepool::kernels {

struct BackendOptions {
  Device device = Device::kCpu;
  Precision precision = Precision::kFast;
  // Only for a CPU: the number of threads, including the calling one, and the instruction set.
  int threads = 1;
  Isa isa = Isa::kBest;
};

// The device changes no bit of the results, except for products of float weights on a GPU (see
// docs/gpu.md). Returns the errors of MakeCpuBackend or MakeCudaBackend.
absl::StatusOr<std::unique_ptr<KernelBackend>> MakeBackend(const BackendOptions& options);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_BACKENDS_MAKE_BACKEND_H_
