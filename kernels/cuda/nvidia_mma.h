// The functions of mma.h in PTX, for compute capability 8.0 and above. Only nvcc compiles this.
#ifndef TIDEPOOL_KERNELS_CUDA_NVIDIA_MMA_H_
#define TIDEPOOL_KERNELS_CUDA_NVIDIA_MMA_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device.h"

namespace tidepool::kernels::cuda {

TIDEPOOL_DEVICE void Mma32(const uint32_t (&a)[4], const uint32_t (&b)[2], int c, int (&d)[4]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c));
}

TIDEPOOL_DEVICE void Mma16(uint32_t a0, uint32_t a1, uint32_t b, int c, int (&d)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(b), "r"(c));
}

template <typename T>
TIDEPOOL_DEVICE uint32_t SharedAddress(const Shared<T>& array, int i) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(array.data() + i));
}

TIDEPOOL_DEVICE void LoadMatrix4(const Shared<U32x4>& array, int row, uint32_t (&out)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(SharedAddress(array, row))
               : "memory");
}

template <typename T>
TIDEPOOL_DEVICE void CopyAsync(const T* from, const Shared<T>& to, int i) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16);
  if constexpr (sizeof(T) == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(to, i)), "l"(from)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(SharedAddress(to, i)), "l"(from),
                 "n"(sizeof(T))
                 : "memory");
  }
}

TIDEPOOL_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

template <int kGroups>
TIDEPOOL_DEVICE void WaitForCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory");
}

template <typename T>
TIDEPOOL_DEVICE T ShuffleQuad(T value, int i) {
  return __shfl_sync(kAllLanes, value, i, 4);
}

TIDEPOOL_DEVICE uint32_t LoadConstant32(const std::byte* at) {
  return __ldg(reinterpret_cast<const unsigned*>(at));
}
TIDEPOOL_DEVICE uint32_t LoadConstant16(const std::byte* at) {
  return __ldg(reinterpret_cast<const unsigned short*>(at));
}
TIDEPOOL_DEVICE uint32_t LoadConstant8(const std::byte* at) {
  return __ldg(reinterpret_cast<const unsigned char*>(at));
}

TIDEPOOL_DEVICE int Forget(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

TIDEPOOL_DEVICE float F16Value(uint32_t half) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(half)));
  return value;
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_NVIDIA_MMA_H_
