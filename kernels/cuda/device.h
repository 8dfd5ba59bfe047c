// The device: what kernels may use, and how the host starts them. Every kernel is compiled twice
// from the same source: by nvcc for a GPU (nvidia_device.h), and by the host compiler for the
// emulated device of tests/kernels/cuda (emulated_device.h, named by TIDEPOOL_DEVICE_HEADER).
//
// Both headers define, in namespace tidepool::kernels::cuda:
//   TIDEPOOL_KERNEL, TIDEPOOL_DEVICE       mark kernels and functions that kernels call. Functions
//                                          marked constexpr can be called without a mark.
//   TIDEPOOL_KERNEL_OF(threads, blocks)    a kernel that is started with at most `threads` threads
//                                          per block; `blocks` blocks should fit in a processor
//   TIDEPOOL_UNROLL, TIDEPOOL_UNROLL_BY(n) before a loop. An array is in registers only if all
//                                          loops over it are unrolled.
//   ThreadIndex, BlockThreads, LaneIndex, WarpIndex            of the block
//   BlockX, BlockY, GridX, GridY
//   BlockBarrier(), WarpBarrier()          all threads of the block, or of the warp, must call it
//   Shuffle(value, lane), ShuffleXor(value, mask), AllLanes(bool)     all lanes must call it
//   SharedArray<T>(first_byte, count)      a part of the block's shared memory, a Shared<T>:
//       array[i], array.Slice(first, count). array[i] is a reference on a GPU, and an object that
//       checks each access on the emulated device. So copy it before the use of members:
//       const U32x4 v = array[i].
//   LoadOnce(p)                            a load of 1, 2, 4, 8 or 16 bytes that will not be reused
//   Dot4(a, b, c)                          c + the dot product of four signed bytes
//   BytePermute(a, b, selector)            each result byte is the byte of (b, a) whose index is in
//                                          the low three bits of the selector's nibble
//   FloatOfF16(half)                       exact; a NaN stays a NaN
//   SquareRoot(x)                          correctly rounded
//   Launch(stream, kernel, grid, threads, shared_bytes, arguments...)     on the host
//
// The emulated device finds the following faults, and reports them as an error of the stream:
// accesses outside of a SharedArray, reads of shared memory that was not written, races on shared
// memory between barriers, barriers that some threads do not reach, and shuffles that some lanes do
// not reach.
#ifndef TIDEPOOL_KERNELS_CUDA_DEVICE_H_
#define TIDEPOOL_KERNELS_CUDA_DEVICE_H_

#ifdef TIDEPOOL_DEVICE_HEADER
#include TIDEPOOL_DEVICE_HEADER
#else
#include "kernels/cuda/nvidia_device.h"
#endif

#endif  // TIDEPOOL_KERNELS_CUDA_DEVICE_H_
