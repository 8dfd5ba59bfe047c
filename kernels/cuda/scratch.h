// DeviceScratch: device memory for values that one kernel of an op passes to the next one. (On a
// CPU, such values stay in the caches.)
#ifndef TIDEPOOL_KERNELS_CUDA_SCRATCH_H_
#define TIDEPOOL_KERNELS_CUDA_SCRATCH_H_

#include <cstddef>

#include "kernels/base/check.h"
#include "kernels/cuda/runtime.h"

namespace tidepool::kernels::cuda {

// Thread-compatible. Grows to the largest request. Before the memory grows, waits for the stream.
class DeviceScratch {
 public:
  DeviceScratch(int device, Stream* stream) : device_(device), stream_(stream) {}
  DeviceScratch(const DeviceScratch&) = delete;
  DeviceScratch& operator=(const DeviceScratch&) = delete;
  ~DeviceScratch() { Release(); }

  // Returns `count` elements. They are valid until the next call: kernels of one stream run in
  // order, so the kernels of the next op may overwrite them.
  template <typename T>
  T* Reserve(size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > bytes_) {
      Release();
      data_ = AllocateDevice(device_, bytes);
      CHECK(data_ != nullptr) << "no " << bytes << " bytes of device memory for scratch";
      bytes_ = bytes;
    }
    return reinterpret_cast<T*>(data_);
  }

 private:
  void Release() {
    if (data_ == nullptr) return;
    (void)Synchronize(stream_);
    FreeDevice(device_, data_);
    data_ = nullptr;
    bytes_ = 0;
  }

  int device_;
  Stream* stream_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_SCRATCH_H_
