// The device of device.h on an NVIDIA GPU. Only nvcc compiles this.
#ifndef TIDEPOOL_KERNELS_CUDA_NVIDIA_DEVICE_H_
#define TIDEPOOL_KERNELS_CUDA_NVIDIA_DEVICE_H_

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cuda/device_types.h"
#include "kernels/cuda/nvidia_stream.h"

#define TIDEPOOL_KERNEL __global__ void
#define TIDEPOOL_KERNEL_OF(threads, blocks) __global__ void __launch_bounds__(threads, blocks)
#define TIDEPOOL_DEVICE __device__ __forceinline__
#define TIDEPOOL_UNROLL _Pragma("unroll")
#define TIDEPOOL_UNROLL_BY(n) TIDEPOOL_PRAGMA(unroll n)
#define TIDEPOOL_PRAGMA(text) _Pragma(#text)

namespace tidepool::kernels::cuda {

TIDEPOOL_DEVICE int ThreadIndex() { return static_cast<int>(threadIdx.x); }
TIDEPOOL_DEVICE int BlockThreads() { return static_cast<int>(blockDim.x); }
TIDEPOOL_DEVICE int LaneIndex() { return ThreadIndex() % kWarpLanes; }
TIDEPOOL_DEVICE int WarpIndex() { return ThreadIndex() / kWarpLanes; }
TIDEPOOL_DEVICE int BlockX() { return static_cast<int>(blockIdx.x); }
TIDEPOOL_DEVICE int BlockY() { return static_cast<int>(blockIdx.y); }
TIDEPOOL_DEVICE int GridX() { return static_cast<int>(gridDim.x); }
TIDEPOOL_DEVICE int GridY() { return static_cast<int>(gridDim.y); }

TIDEPOOL_DEVICE void BlockBarrier() { __syncthreads(); }
TIDEPOOL_DEVICE void WarpBarrier() { __syncwarp(); }

inline constexpr unsigned kAllLanes = 0xffffffffu;

template <typename T>
TIDEPOOL_DEVICE T Shuffle(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
template <typename T>
TIDEPOOL_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
TIDEPOOL_DEVICE bool AllLanes(bool vote) { return __all_sync(kAllLanes, vote) != 0; }

// A part of the block's shared memory.
template <typename T>
class Shared {
 public:
  TIDEPOOL_DEVICE explicit Shared(T* data) : data_(data) {}
  TIDEPOOL_DEVICE T& operator[](int i) const { return data_[i]; }
  TIDEPOOL_DEVICE Shared Slice(int first, int) const { return Shared(data_ + first); }
  TIDEPOOL_DEVICE T* data() const { return data_; }

 private:
  T* data_;
};

template <typename T>
TIDEPOOL_DEVICE Shared<T> SharedArray(int first_byte, int /*count*/) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  return Shared<T>(reinterpret_cast<T*>(shared_bytes + first_byte));
}

template <typename T>
TIDEPOOL_DEVICE T LoadOnce(const T* at) {
  if constexpr (sizeof(T) == 16) {
    const uint4 v = __ldcs(reinterpret_cast<const uint4*>(at));
    return __builtin_bit_cast(T, v);
  } else if constexpr (sizeof(T) == 8) {
    const uint2 v = __ldcs(reinterpret_cast<const uint2*>(at));
    return __builtin_bit_cast(T, v);
  } else if constexpr (sizeof(T) == 4) {
    const unsigned v = __ldcs(reinterpret_cast<const unsigned*>(at));
    return __builtin_bit_cast(T, v);
  } else if constexpr (sizeof(T) == 2) {
    const unsigned short v = __ldcs(reinterpret_cast<const unsigned short*>(at));
    return __builtin_bit_cast(T, v);
  } else {
    const unsigned char v = __ldcs(reinterpret_cast<const unsigned char*>(at));
    return __builtin_bit_cast(T, v);
  }
}

TIDEPOOL_DEVICE int Dot4(uint32_t a, uint32_t b, int c) {
  return __dp4a(static_cast<int>(a), static_cast<int>(b), c);
}
TIDEPOOL_DEVICE uint32_t BytePermute(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}
TIDEPOOL_DEVICE float FloatOfF16(uint16_t half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}
TIDEPOOL_DEVICE float SquareRoot(float x) { return __fsqrt_rn(x); }

// Starts `kernel` after all earlier work of the stream. An error is kept in the stream.
template <typename... Parameters>
void Launch(Stream* stream, void (*kernel)(Parameters...), Grid grid, int threads, int shared_bytes,
            std::type_identity_t<Parameters>... arguments) {
  stream->Use();
  const auto* const function = reinterpret_cast<const void*>(kernel);
  stream->AllowShared(function, shared_bytes);
  void* pointers[] = {static_cast<void*>(&arguments)...};
  stream->Note(cudaLaunchKernel(function,
                                dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y),
                                     static_cast<unsigned>(grid.z)),
                                dim3(static_cast<unsigned>(threads)), pointers,
                                static_cast<size_t>(shared_bytes), stream->handle()));
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_NVIDIA_DEVICE_H_
