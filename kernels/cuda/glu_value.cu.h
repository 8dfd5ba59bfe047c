// The element-wise function of gated FFNs, for kernels.
#ifndef TIDEPOOL_KERNELS_CUDA_GLU_VALUE_CU_H_
#define TIDEPOOL_KERNELS_CUDA_GLU_VALUE_CU_H_

#include "kernels/backend.h"
#include "kernels/cuda/device.h"
#include "kernels/math.h"

namespace tidepool::kernels::cuda {

// Returns glu(gate, up), as backend.h defines it.
TIDEPOOL_DEVICE float GluOf(const Glu& glu, float gate, float up) {
  switch (glu.form) {
    case GluForm::kSwiGlu:
      return Silu(gate) * up;
    case GluForm::kGeGlu:
      return Gelu(gate) * up;
    case GluForm::kGeGluTanh:
      return GeluTanh(gate) * up;
    case GluForm::kClampedSwiGlu:
      return ClampedSwiGlu(gate, up, glu.alpha, glu.limit);
  }
  return 0;
}

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_GLU_VALUE_CU_H_
