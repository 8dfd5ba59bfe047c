// Marks for functions and tables that host code and CUDA kernels both use.
#ifndef TIDEPOOL_KERNELS_HOST_DEVICE_H_
#define TIDEPOOL_KERNELS_HOST_DEVICE_H_

#ifdef __CUDACC__
#define TIDEPOOL_HOST_DEVICE __host__ __device__
#else
#define TIDEPOOL_HOST_DEVICE
#endif

// A constant array needs memory on the device, too. Example:
//   TIDEPOOL_TABLE constexpr float kTable[2] = {1, 2};
#ifdef __CUDA_ARCH__
#define TIDEPOOL_TABLE static __device__
#else
#define TIDEPOOL_TABLE inline
#endif

#endif  // TIDEPOOL_KERNELS_HOST_DEVICE_H_
