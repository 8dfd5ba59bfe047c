// Linear: multiplies rows by a weight matrix. All products of the model use it.
//
//   Multiply(backend, x, {layer.q.Into(q), layer.k.Into(k), layer.v.Into(v)});  // one call, one x
//   Multiply(backend, attended, {layer.output.AddTo(residual)});
#ifndef TIDEPOOL_ENGINE_MODEL_LINEAR_H_
#define TIDEPOOL_ENGINE_MODEL_LINEAR_H_

#include <cstdint>
#include <initializer_list>

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::engine {

// y = W x + bias. A WeightStore owns the memory. Immutable, so thread-safe.
struct Linear {
  kernels::PackedMatrix weight;  // [outputs, inputs]
  absl::Span<const float> bias;  // [outputs], or empty

  int64_t outputs() const { return weight.rows; }
  int64_t inputs() const { return weight.cols; }

  // Targets for Multiply. With Into, the product replaces `out` [rows, outputs]. With AddTo, it is
  // added to `out`.
  kernels::MatMulTarget Into(kernels::MatrixView out) const {
    return {weight, out, bias, kernels::Store::kReplace};
  }
  kernels::MatMulTarget AddTo(kernels::MatrixView out) const {
    return {weight, out, bias, kernels::Store::kAdd};
  }
};

// Computes all targets from the same rows x.
inline void Multiply(kernels::KernelBackend* backend, const kernels::Activation& x,
                     std::initializer_list<kernels::MatMulTarget> targets) {
  backend->MatMul(x, absl::MakeConstSpan(targets.begin(), targets.size()));
}

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_LINEAR_H_
