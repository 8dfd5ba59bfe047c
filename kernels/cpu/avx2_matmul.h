// KernelTable::multiply_int8 for AVX2, for every quantised type. Does nothing if the build has no
// AVX2.
#ifndef TIDEPOOL_KERNELS_CPU_AVX2_MATMUL_H_
#define TIDEPOOL_KERNELS_CPU_AVX2_MATMUL_H_

#include "kernels/cpu/kernel_table.h"

namespace tidepool::kernels {

void Avx2MultiplyInt8(const Tile& tile);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_AVX2_MATMUL_H_
