// The recurrent ops of the CPU backend: divides them into tiles, and distributes these among
// threads.
#ifndef TIDEPOOL_KERNELS_CPU_RECURRENT_H_
#define TIDEPOOL_KERNELS_CPU_RECURRENT_H_

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cpu/matmul.h"

namespace tidepool::kernels {

// These functions implement ops of KernelBackend. The caller has checked the arguments.
void ConvolveRows(const CpuContext& context, const CausalConvCall& call);
void AdvanceDeltaNet(const CpuContext& context, const DeltaNetCall& call);
struct GatedNormArgs {
  ConstMatrixView x;
  ConstMatrixView z;
  absl::Span<const float> weight;
  float eps;
};
void NormalizeGated(const CpuContext& context, const GatedNormArgs& args,
                    const ActivationBuffer& out);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_RECURRENT_H_
