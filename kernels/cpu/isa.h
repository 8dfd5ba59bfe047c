// Chooses the kernels for a machine.
#ifndef TIDEPOOL_KERNELS_CPU_ISA_H_
#define TIDEPOOL_KERNELS_CPU_ISA_H_

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/kernel_table.h"

namespace tidepool::kernels {

// Features of a CPU that the operating system also supports.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // AVX-512 F, BW, VL and DQ
  bool avx512_vnni = false;  // AVX-512 VNNI
};

// Returns the features of this machine.
CpuFeatures DetectCpu();

// Tables of kernels: the AVX-512 function if there is one, else the AVX2 function. Null on other
// architectures. Any machine may call these, like the functions of kernel_table.h.
const KernelTable* Avx512Kernels();
const KernelTable* Avx512VnniKernels();

// Returns the kernels of `isa`, or the best ones that the build and `features` support.
// FAILED_PRECONDITION if `isa` is not supported.
absl::StatusOr<const KernelTable*> ChooseKernels(Isa isa, const CpuFeatures& features);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ISA_H_
