// The ops of the CUDA backend, one function each. cuda_backend.cc has checked the arguments and
// allocated the results; these functions start kernels. Files:
//   rows*.cu.cc            all ops that work row by row, such as Zero, Norm and AddGated
//   embed.cu.cc            Embed
//   attention*.cu.cc       Attend
//   kv_store.cu.cc         StoreKv
//   gate.cu.cc             Gate
//   recurrent*.cu.cc       CausalConv, DeltaNet, GatedNorm
//   experts_combine.cu.cc  CombineExperts, AccumulateExpert
//   matmul*.cu.cc          all products, for few rows
//   tensor_core*.cu.cc     the same products for many rows (tensor_core.h)
//
// Rules of a kernel file: functions of the host are in namespace tidepool::kernels::cuda, and
// kernels in an unnamed namespace within it. Kernels use only device.h and constexpr functions
// (math.h, panel.h, panel_block.h, recurrent.h). Arguments are device pointers and small structs by
// value. Host arrays (ids, spans, block tables) go through context.staging->Carry. Scratch memory
// comes from the arena. No function waits for the device. Blocks have whole warps, and all threads
// of a block reach each barrier. The size of a grid must not depend on values in device memory.
#ifndef TIDEPOOL_KERNELS_CUDA_CUDA_OPS_H_
#define TIDEPOOL_KERNELS_CUDA_CUDA_OPS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/staging.h"
#include "kernels/ops.h"

namespace tidepool::kernels::cuda {

// KernelBackend::threads() of the backend. It only bounds scratch memory (ops.h).
inline constexpr int kCudaThreads = 64;

// What all ops use. Does not own the objects.
struct CudaContext {
  Stream* stream = nullptr;
  StagingRing* staging = nullptr;
  Precision precision = Precision::kFast;
  DeviceInfo device;
  DeviceScratch* scratch = nullptr;
  int threads = kCudaThreads;
};

// Ops on rows. QuantizeRows computes the int8 form of `values`, which earlier kernels have written.
// It does nothing if `rows` has no int8 form.
void ZeroRows(const CudaContext& context, MatrixView out);
void GatherRows(const CudaContext& context, ConstMatrixView x, absl::Span<const int64_t> rows,
                MatrixView out);
void CopyHeads(const CudaContext& context, const HeadCopy& copy, ConstMatrixView from,
               MatrixView to);
void ScanRows(const CudaContext& context, ConstMatrixView x, float limit, RowScan* out);
void QuantizeRows(const CudaContext& context, ConstMatrixView values, const ActivationBuffer& rows);
// `out` has 2 * x.rows rows.
void QuantizeInTwo(const CudaContext& context, const Activation& x, const ActivationBuffer& out);
void NormRows(const CudaContext& context, ConstMatrixView x, absl::Span<const float> weight,
              float eps, const ActivationBuffer& out);
void HeadNorm(const CudaContext& context, MatrixView x, absl::Span<const float> weight, float eps);
struct Rotation {
  int head_dim = 0;
  RopeStyle style = RopeStyle::kInterleaved;
  ConstMatrixView cos;
  ConstMatrixView sin;
};
void RotateRows(const CudaContext& context, MatrixView x, const Rotation& rotation);
void AddRows(const CudaContext& context, ConstMatrixView x, MatrixView out);
void AddScaledRows(const CudaContext& context, ConstMatrixView x, float scale, MatrixView out);
void ScaleRows(const CudaContext& context, MatrixView x, float scale);
void AddGatedRows(const CudaContext& context, ConstMatrixView x, absl::Span<const float> gate,
                  MatrixView out);

// Embedding, products and experts.
void EmbedRows(const CudaContext& context, const PackedMatrix& table, absl::Span<const int32_t> ids,
               MatrixView out);
void MultiplyTargets(const CudaContext& context, const Activation& x,
                     absl::Span<const MatMulTarget> targets);
void MultiplyHead(const CudaContext& context, const Activation& x, const HeadTarget& target,
                  Arena* arena);
void MultiplyHeads(const CudaContext& context, const Activation& x,
                   absl::Span<const PackedMatrix> weights, MatrixView out);
void MultiplyGlu(const CudaContext& context, const Activation& x, const FfnWeights& ffn,
                 const ActivationBuffer& out);
void MultiplyGroups(const CudaContext& context, const Activation& x,
                    absl::Span<const ExpertGroup> groups, MatrixView out, Arena* arena);
// The rows and weights of CombineExperts, in host memory.
struct ExpertSlots {
  int slots = 0;
  const int32_t* rows = nullptr;
  const float* weights = nullptr;
};
void CombineExperts(const CudaContext& context, ConstMatrixView expert_out,
                    const ExpertSlots& slots, MatrixView out);
void AccumulateExpert(const CudaContext& context, ConstMatrixView expert_out,
                      const ExpertTerms& terms, MatrixView sum);
void GateRows(const CudaContext& context, ConstMatrixView logits, const GateSpec& spec,
              int32_t* ids, float* weights);

// Attention and recurrent states.
void StoreKvRows(const CudaContext& context, ConstMatrixView k, ConstMatrixView v,
                 const KvLayer& layer, absl::Span<const KvSpan> spans);
void AttendRows(const CudaContext& context, const AttendCall& call, const ActivationBuffer& out,
                Arena* arena);
void ConvolveRows(const CudaContext& context, const CausalConvCall& call);
void AdvanceDeltaNet(const CudaContext& context, const DeltaNetCall& call);
struct GatedNormCall {
  ConstMatrixView x;
  ConstMatrixView z;
  absl::Span<const float> weight;
  float eps = 0;
};
void GatedNormRows(const CudaContext& context, const GatedNormCall& call,
                   const ActivationBuffer& out);

}  // namespace tidepool::kernels::cuda

#endif  // TIDEPOOL_KERNELS_CUDA_CUDA_OPS_H_
