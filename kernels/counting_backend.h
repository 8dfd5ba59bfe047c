// A KernelBackend that computes nothing, for a dry run that measures the arena of a pass. Its ops
// allocate what the CPU's ops allocate, by the same functions (ops.h).
//
//   Arena arena = Arena::Counting();
//   const auto backend = MakeCountingBackend(real.precision(), real.threads());
//   backend->Norm(x, weight, eps, &arena);  // x has a shape, but no memory
//   const size_t bytes = arena.high_water();
#ifndef TIDEPOOL_KERNELS_COUNTING_BACKEND_H_
#define TIDEPOOL_KERNELS_COUNTING_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace tidepool::kernels {

// No op accesses the memory of its arguments.
std::unique_ptr<KernelBackend> MakeCountingBackend(Precision precision, int threads);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_COUNTING_BACKEND_H_
