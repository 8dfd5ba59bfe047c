// The backend of a program that is built without CUDA.
#include "absl/status/status.h"
#include "kernels/cuda/cuda_backend.h"

namespace tidepool::kernels {

absl::StatusOr<std::unique_ptr<KernelBackend>> MakeCudaBackend(const CudaOptions&) {
  return absl::FailedPreconditionError(
      "this program was built without CUDA; build it with --config=cuda");
}

}  // namespace tidepool::kernels
