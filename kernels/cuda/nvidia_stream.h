// The stream of runtime.h on an NVIDIA GPU.
#ifndef TIDEPOOL_KERNELS_CUDA_NVIDIA_STREAM_H_
#define TIDEPOOL_KERNELS_CUDA_NVIDIA_STREAM_H_

#include <cuda_runtime_api.h>

namespace tidepool::kernels::cuda {

// Thread-compatible. Keeps the first error of its calls.
class Stream {
 public:
  Stream(int device, cudaStream_t handle) : device_(device), handle_(handle) {}

  int device() const { return device_; }
  cudaStream_t handle() const { return handle_; }
  cudaError_t error() const { return error_; }
  void Note(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }

 private:
  int device_;
  cudaStream_t handle_;
  cudaError_t error_ = cudaSuccess;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_NVIDIA_STREAM_H_
