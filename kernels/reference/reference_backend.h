// The reference implementation of each op: plain loops in the order of the definition. Sums are
// computed in float64.
#ifndef TIDEPOOL_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
#define TIDEPOOL_KERNELS_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace tidepool::kernels {

// Uses one thread and is slow. Int8 activations are the same as in every backend (ops.h). So with
// kFast, only the rounding of sums differs.
std::unique_ptr<KernelBackend> MakeReferenceBackend(Precision precision);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
