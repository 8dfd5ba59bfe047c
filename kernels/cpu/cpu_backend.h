// The CPU's KernelBackend: the laws of backend.h at the speed of the machine's vector units.
#ifndef TIDEPOOL_KERNELS_CPU_CPU_BACKEND_H_
#define TIDEPOOL_KERNELS_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

// Instruction sets with a form of their own, each with all that the ones before it have. kBest: the
// fastest that this machine has.
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Vnni, kBest };

struct CpuOptions {
  int threads = 1;  // counts the calling thread
  Precision precision = Precision::kFast;
  Isa isa = Isa::kBest;
};

// Starts the backend's threads. INVALID_ARGUMENT for fewer than 1 or more than 1024 of them;
// FAILED_PRECONDITION when the machine lacks options.isa.
// All choices of threads and isa give equal bits.
absl::StatusOr<std::unique_ptr<KernelBackend>> MakeCpuBackend(const CpuOptions& options);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_CPU_BACKEND_H_
