// The truth of each op: plain loops in the order of the definition, sums in float64.
#ifndef TIDEPOOL_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
#define TIDEPOOL_KERNELS_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace tidepool::kernels {

// One thread, slow. Its int8 activations are those of every backend (ops.h), so under kFast it
// differs from them by the rounding of sums alone.
std::unique_ptr<KernelBackend> MakeReferenceBackend(Precision precision);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_REFERENCE_REFERENCE_BACKEND_H_
