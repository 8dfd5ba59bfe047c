// A KernelBackend that computes nothing. A dry run of a pass uses it to measure the arena that the
// pass needs. Its ops allocate the same memory as the CPU's ops, because both use the same
// functions (ops.h).
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

// The ops do not access the memory of their arguments.
std::unique_ptr<KernelBackend> MakeCountingBackend(Precision precision, int threads);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_COUNTING_BACKEND_H_
