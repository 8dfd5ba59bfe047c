// KernelBackend::CombineExperts: the weighted sum of the experts of each token.
#include "absl/types/span.h"
#include "kernels/base/check.h"
#include "kernels/cuda/argument_pack.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/rows_elements.cu.h"

namespace tidepool::kernels::cuda {
namespace {

struct CombineElement {
  const float* expert_out;
  int64_t stride;
  int slots;
  const int32_t* rows;   // [out rows, slots]
  const float* weights;  // [out rows, slots]
  float* out;
  int64_t out_stride;
  TIDEPOOL_DEVICE void operator()(int64_t token, int64_t col) const {
    float sum = 0;
    for (int64_t at = token * slots; at < (token + 1) * slots; ++at) {
      sum = __builtin_fmaf(weights[at], expert_out[rows[at] * stride + col], sum);
    }
    float& to = out[token * out_stride + col];
    to = to + sum;
  }
};

struct AccumulateElement {
  const float* expert_out;
  int64_t stride;
  const int32_t* rows;
  const int32_t* tokens;
  const float* weights;
  float* sum;
  int64_t sum_stride;
  TIDEPOOL_DEVICE void operator()(int64_t i, int64_t col) const {
    float& to = sum[tokens[i] * sum_stride + col];
    to = __builtin_fmaf(weights[i], expert_out[rows[i] * stride + col], to);
  }
};

}  // namespace

void CombineExperts(const CudaContext& context, ConstMatrixView expert_out,
                    const ExpertSlots& slots, MatrixView out) {
  if (out.rows == 0 || out.cols == 0) return;
  const auto& [per_row, rows, weights] = slots;
  const auto count = static_cast<size_t>(out.rows * per_row);
  for (size_t i = 0; i < count; ++i) {
    CHECK(rows[i] >= 0 && rows[i] < expert_out.rows) << "row " << rows[i];
  }
  ArgumentPack pack;
  const auto row_array = pack.Add(absl::MakeConstSpan(rows, count));
  const auto weight_array = pack.Add(absl::MakeConstSpan(weights, count));
  const std::byte* const packed = pack.Carry(context.staging);
  ForElements(context, out.rows, out.cols,
              CombineElement{expert_out.data, expert_out.stride, per_row, row_array.In(packed),
                             weight_array.In(packed), out.data, out.stride});
}

void AccumulateExpert(const CudaContext& context, ConstMatrixView expert_out,
                      const ExpertTerms& terms, MatrixView sum) {
  if (terms.rows.empty() || sum.cols == 0) return;
  ArgumentPack pack;
  const auto rows = pack.Add(terms.rows);
  const auto tokens = pack.Add(terms.tokens);
  const auto weights = pack.Add(terms.weights);
  const std::byte* const packed = pack.Carry(context.staging);
  ForElements(context, static_cast<int64_t>(terms.rows.size()), sum.cols,
              AccumulateElement{expert_out.data, expert_out.stride, rows.In(packed),
                                tokens.In(packed), weights.In(packed), sum.data, sum.stride});
}

}  // namespace tidepool::kernels::cuda
