// The backend for NVIDIA GPUs (compute capability 8.0 and above). Its results have the CPU's bits.
//
// kernels/cuda is built with --config=cuda. Without it, MakeCudaBackend exists but refuses.
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
// CUDA. Ops run later than the call that asks for them; errors of the device show at Sync.
absl::StatusOr<std::unique_ptr<KernelBackend>> MakeCudaBackend(const CudaOptions& options);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CUDA_CUDA_BACKEND_H_
