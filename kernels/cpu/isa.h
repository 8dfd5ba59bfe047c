// Chooses the kernels that fit a machine.
#ifndef TIDEPOOL_KERNELS_CPU_ISA_H_
#define TIDEPOOL_KERNELS_CPU_ISA_H_

#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/kernel_table.h"

namespace tidepool::kernels {

// The features of a CPU. Each is true only if the operating system supports it, too.
struct CpuFeatures {
  bool avx2 = false;         // AVX2, FMA and F16C
  bool avx512 = false;       // AVX-512 F, BW, VL and DQ
  bool avx512_vnni = false;  // AVX-512 VNNI
};

// Returns the features of this machine.
CpuFeatures DetectCpu();

// Tables of kernels. They have the AVX-512 function where there is one, otherwise the AVX2
// function. Null on other architectures. These functions may be called on any machine, like those
// of kernel_table.h.
const KernelTable* Avx512Kernels();
const KernelTable* Avx512VnniKernels();

// Returns the kernels of `isa`. For kBest, returns the fastest ones that the build and `features`
// support. Returns FAILED_PRECONDITION if `isa` is not supported.
absl::StatusOr<const KernelTable*> ChooseKernels(Isa isa, const CpuFeatures& features);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ISA_H_
