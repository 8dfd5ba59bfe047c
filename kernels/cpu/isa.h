// Which form of the kernels a machine runs.
#ifndef TIDEPOOL_KERNELS_CPU_ISA_H_
#define TIDEPOOL_KERNELS_CPU_ISA_H_

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/kernel_table.h"

namespace tidepool::kernels {

// What a machine's processor and operating system offer.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // AVX-512 F, BW, VL and DQ
  bool avx512_vnni = false;  // AVX-512 VNNI
};

// Those of this machine.
CpuFeatures DetectCpu();

// AVX2's kernels with what the wider forms do otherwise; null where the build's architecture has
// none. As kernel_table.h says of the others, any machine may ask.
const KernelTable* Avx512Kernels();
const KernelTable* Avx512VnniKernels();

// The kernels of `isa`, or of the best one that the build and `features` have. FAILED_PRECONDITION
// when they lack it.
absl::StatusOr<const KernelTable*> ChooseKernels(Isa isa, const CpuFeatures& features);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ISA_H_
