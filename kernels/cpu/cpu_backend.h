// The CPU's KernelBackend: follows the rules of backend.h with vector instructions.
#ifndef TIDEPOOL_KERNELS_CPU_CPU_BACKEND_H_
#define TIDEPOOL_KERNELS_CPU_CPU_BACKEND_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

// Instruction sets with their own kernels. Each includes the ones before it. kBest: the fastest
// that this machine supports.
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Vnni, kBest };

struct CpuOptions {
  int threads = 1;  // including the calling thread
  Precision precision = Precision::kFast;
  Isa isa = Isa::kBest;
};

// Starts the backend's threads. INVALID_ARGUMENT for fewer than 1 or more than 1024 threads,
// FAILED_PRECONDITION if the machine does not support options.isa. Results have equal bits for all
// threads and isa.
absl::StatusOr<std::unique_ptr<KernelBackend>> MakeCpuBackend(const CpuOptions& options);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_CPU_BACKEND_H_
