// The stream of runtime.h on an NVIDIA GPU.
#ifndef TIDEPOOL_KERNELS_CUDA_NVIDIA_STREAM_H_
#define TIDEPOOL_KERNELS_CUDA_NVIDIA_STREAM_H_

#include <cuda_runtime_api.h>

#include <map>

namespace tidepool::kernels::cuda {

// Makes `device` the device of the calling thread's CUDA calls. Every thread begins with device 0.
// Only this function changes the device, so a repeated call costs nothing.
inline cudaError_t UseDevice(int device) {
  thread_local int current = -1;
  if (current == device) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(device);
  if (error == cudaSuccess) current = device;
  return error;
}

// Thread-compatible. Keeps the first error of its calls.
class Stream {
 public:
  Stream(int device, cudaStream_t handle) : device_(device), handle_(handle) {}

  // Must be called before CUDA calls that use the handle, because the thread may be a new one.
  void Use() { Note(UseDevice(device_)); }
  cudaStream_t handle() const { return handle_; }
  cudaError_t error() const { return error_; }
  void Note(cudaError_t error) {
    if (error_ == cudaSuccess) error_ = error;
  }

  // Allows a kernel to use `bytes` bytes of shared memory per block. A kernel that uses more than
  // the default needs this once.
  void AllowShared(const void* kernel, int bytes) {
    constexpr int kDefault = 48 * 1024;
    if (bytes <= kDefault) return;
    int& allowed = allowed_shared_[kernel];
    if (bytes <= allowed) return;
    Note(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    allowed = bytes;
  }

 private:
  int device_;
  cudaStream_t handle_;
  cudaError_t error_ = cudaSuccess;
  std::map<const void*, int> allowed_shared_;  // bytes by kernel, if AllowShared has set them
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_NVIDIA_STREAM_H_
