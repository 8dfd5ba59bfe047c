// Branch: connects a part of a layer (attention or FFN) with the residual stream. It consists of
// the norms and the scale of this connection.
//
//   Multiply(backend, branch.Input(x, arena), {gate.Into(inner)});
//   branch.AddProduct(inner, down, x, arena);  // x += scale * post_norm(down(inner))
#ifndef TIDEPOOL_ENGINE_MODEL_BRANCH_H_
#define TIDEPOOL_ENGINE_MODEL_BRANCH_H_

#include "absl/types/span.h"
#include "engine/model/linear.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

struct Branch {
  kernels::KernelBackend* backend = nullptr;
  absl::Span<const float> pre_norm;   // weight of the norm of the input; empty: no norm
  absl::Span<const float> post_norm;  // weight of the norm of the output; empty: no norm
  float norm_eps = 0;
  float scale = 1;  // the output is multiplied by this

  // Returns whether a product can be added to the residual stream unchanged.
  bool plain() const { return post_norm.empty() && scale == 1; }

  kernels::Activation Input(kernels::ConstMatrixView x, kernels::Arena* arena) const {
    if (pre_norm.empty()) return backend->Quantize(x, arena);
    return backend->Norm(x, pre_norm, norm_eps, arena);
  }

  // Adds an output to the residual stream x. Also changes `out`.
  void Add(kernels::MatrixView out, kernels::MatrixView x) const {
    if (!post_norm.empty()) backend->HeadNorm(out, post_norm, norm_eps);
    if (scale == 1) {
      backend->Add(out, x);
    } else {
      backend->AddScaled(out, scale, x);
    }
  }

  // Like Add, for an output that is the product of `inner` and `linear`.
  void AddProduct(const kernels::Activation& inner, const Linear& linear, kernels::MatrixView x,
                  kernels::Arena* arena) const {
    if (plain()) return Multiply(backend, inner, {linear.AddTo(x)});
    const kernels::MatrixView out = arena->AllocateMatrix(x.rows, x.cols);
    Multiply(backend, inner, {linear.Into(out)});
    Add(out, x);
  }
};

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_BRANCH_H_
