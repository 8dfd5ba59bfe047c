// The element-wise part of a gated FFN.
#ifndef TIDEPOOL_KERNELS_CUDA_GLU_H_
#define TIDEPOOL_KERNELS_CUDA_GLU_H_

#include "kernels/backend.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/ops.h"

namespace tidepool::kernels::cuda {

// Replaces out.values, which are the gate's product, by glu(gate, up), and computes the int8 form.
void ApplyGlu(const CudaContext& context, ConstMatrixView up, const Glu& glu,
              const ActivationBuffer& out);

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_GLU_H_
