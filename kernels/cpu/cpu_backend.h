// The KernelBackend of CPUs. It follows the rules of backend.h and uses vector instructions.
#ifndef TIDEPOOL_KERNELS_CPU_CPU_BACKEND_H_
#define TIDEPOOL_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/device.h"

namespace tidepool::kernels {

struct CpuOptions {
  int threads = 1;  // number of threads, including the calling thread
  Precision precision = Precision::kFast;
  Isa isa = Isa::kBest;
};

// Creates the backend and starts its threads. Returns INVALID_ARGUMENT if there are fewer than 1 or
// more than 1024 threads, and FAILED_PRECONDITION if the machine does not support options.isa.
// Neither the number of threads nor the ISA changes any bit of the results.
absl::StatusOr<std::unique_ptr<KernelBackend>> MakeCpuBackend(const CpuOptions& options);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_CPU_BACKEND_H_
