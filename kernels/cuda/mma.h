// Tensor cores and asynchronous copies. Like device.h, it has two forms: PTX (nvidia_mma.h), and
// that of the emulated device (named by TIDEPOOL_MMA_HEADER), which follows the same layouts of
// fragments. All lanes of a warp must call the first three together.
// tests/kernels/cuda/mma_layouts.txt has the layouts, from an independent source.
//
//   Mma32(a, b, c, d)      d[i] = c + the product of A (16 x 32) and B (32 x 8), whose elements are
//                          signed bytes. a[4], b[2] and d[4] are fragments. c is a number.
//   Mma16(a0, a1, b, c, d)         the same for 16 columns of A; the fragments are words
//   LoadMatrix4(array, row, out)   loads four matrices of 8 x 16 bytes. Row i of matrix m is
//                                  array[row of lane 8m + i]. out[m] is the lane's part of matrix
//                                  m: four bytes from 4 * (lane % 4) on, of row lane / 4.
//   CopyAsync(from, to, i)    begins to copy to[i] = *from (4, 8 or 16 bytes, aligned)
//   CommitCopies()            puts the copies that this thread began since the last call into a
//                             group
//   WaitForCopies<kGroups>()  waits until at most the last kGroups groups of this thread are not
//                             complete. Other threads see the copies after a barrier.
//   ShuffleQuad(value, i)     the value of lane i of the four lanes lane / 4 * 4 + (0 to 3)
//   LoadConstant32(p), LoadConstant16(p), LoadConstant8(p)      load from device memory that does
//                             not change while the kernel runs. p is a const std::byte*.
//   Forget(value)             the value, but the compiler cannot know that it did not change. So
//                             the compiler does not keep results of the value in registers.
//   F16Value(half)            the float of a float16, which is in the low 16 bits
#ifndef TIDEPOOL_KERNELS_CUDA_MMA_H_
#define TIDEPOOL_KERNELS_CUDA_MMA_H_

#ifdef TIDEPOOL_MMA_HEADER
#include TIDEPOOL_MMA_HEADER
#else
#include "kernels/cuda/nvidia_mma.h"
#endif

#endif  // TIDEPOOL_KERNELS_CUDA_MMA_H_
