// The backend for NVIDIA GPUs (compute capability 8.0 and above). Its results have the CPU's bits.
//
// kernels/cuda is built with --config=cuda. Without this flag, MakeCudaBackend only returns an
// error.
#ifndef TIDEPOOL_KERNELS_CUDA_CUDA_BACKEND_H_
#define TIDEPOOL_KERNELS_CUDA_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

struct CudaOptions {
  int device = 0;
  Precision precision = Precision::kFast;
};

// Returns FAILED_PRECONDITION if there is no such device, or if this program was built without
// CUDA. An op may run after its call has returned. Sync returns the errors of the device.
absl::StatusOr<std::unique_ptr<KernelBackend>> MakeCudaBackend(const CudaOptions& options);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CUDA_CUDA_BACKEND_H_
