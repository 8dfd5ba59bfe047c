// TransformerModel: computes logits from the residual stream after the last layer.
#include <algorithm>

#include "engine/model/hidden_values.h"
#include "engine/model/transformer.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

namespace tidepool::engine {

using kernels::Activation;
using kernels::MatrixView;

// Computes the head only for the requested rows of logits or argmax.
absl::StatusOr<StepOutput> TransformerModel::Head(const Pass& pass) const {
  const int64_t logits = pass.batch.logit_rows();
  const int64_t wanted = logits + pass.batch.argmax_rows();
  const MatrixView rows = pass.arena->AllocateMatrix(wanted, config_.hidden_size);
  int64_t next[] = {0, logits};  // next row of logits, and next argmax row
  int64_t first_row = 0;
  kernels::HeadTarget target;
  for (const RowSpan& span : pass.batch.spans) {
    for (const int32_t row : span.logit_rows) {
      if (pass.dry()) break;
      RETURN_IF_ERROR(CheckNotZero(pass.rows->zero_since[first_row + row]));
      std::copy_n(pass.x.Row(first_row + row), rows.cols, rows.Row(next[span.argmax_vocab > 0]++));
    }
    target.argmax_vocab = std::max<int64_t>(target.argmax_vocab, span.argmax_vocab);
    first_row += span.rows();
  }
  const Activation hidden =
      pass.backend->Norm(rows, weights_.final_norm, config_.norm_eps, pass.arena);
  Observe("norm", pass, hidden.values);
  if (wanted == 0) return StepOutput();
  target.weight = weights_.head.weight;
  target.bias = weights_.head.bias;
  target.scale = config_.logit_scale;
  target.soft_cap = config_.logit_softcap;
  target.out = pass.arena->AllocateMatrix(logits, config_.vocab_size);
  // The size does not depend on how many of the rows are argmax rows. So a pass in which logits are
  // requested for all rows needs the most memory.
  target.best = absl::MakeSpan(pass.arena->Allocate<kernels::ArgMax>(wanted),
                               static_cast<size_t>(wanted - logits));
  if (HeadHasTwoTerms()) {
    target.terms = 2;
    pass.backend->MatMulHead(TwoTerms(hidden, pass), target, pass.arena);
  } else {
    pass.backend->MatMulHead(hidden, target, pass.arena);
  }
  if (!pass.dry()) RETURN_IF_ERROR(CheckLogits(target.out));
  return StepOutput{target.out, target.best};
}

bool TransformerModel::HeadHasTwoTerms() const {
  return kernels::IsQuantised(weights_.head.weight.dtype) &&
         kernels::HasInt8Form(backend_->precision(), config_.hidden_size);
}

// After the head, no layer averages out rounding errors. So int8 rows would cost more precision
// here than in any other product (a third of the KL divergence from exact results). Therefore each
// row is split into two int8 rows: its rounded value, and the remainder. Each weight is multiplied
// with both while it is in registers. Decoding is limited by reading weights, so this costs almost
// nothing there.
Activation TransformerModel::TwoTerms(const Activation& hidden, const Pass& pass) const {
  const int64_t rows = hidden.values.rows;
  const int64_t cols = hidden.values.cols;
  const int64_t blocks = cols / kernels::kQuantBlock;
  const MatrixView terms = pass.arena->AllocateMatrix(2 * rows, cols);
  for (int64_t i = 0; i < rows && !pass.dry(); ++i) {
    const float* x = hidden.values.Row(i);
    float* left = terms.Row(rows + i);
    std::copy_n(x, cols, terms.Row(i));
    for (int64_t k = 0; k < cols; ++k) {
      const float scale = hidden.scales[i * blocks + k / kernels::kQuantBlock];
      left[k] = x[k] - scale * static_cast<float>(hidden.quants[i * cols + k]);
    }
  }
  return pass.backend->Quantize(terms, pass.arena);
}

}  // namespace tidepool::engine
