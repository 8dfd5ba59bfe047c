// Types of both devices (device.h).
#ifndef TIDEPOOL_KERNELS_CUDA_DEVICE_TYPES_H_
#define TIDEPOOL_KERNELS_CUDA_DEVICE_TYPES_H_

#include <cstdint>

namespace tidepool::kernels::cuda {

inline constexpr int kWarpLanes = 32;

// Blocks of a launch.
struct Grid {
  int x = 1;
  int y = 1;
  int z = 1;
};

// Words that are loaded and stored together.
struct alignas(8) U32x2 {
  uint32_t x, y;
};
struct alignas(16) U32x4 {
  uint32_t x, y, z, w;
};
struct alignas(16) F32x4 {
  float x, y, z, w;
};

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_DEVICE_TYPES_H_
