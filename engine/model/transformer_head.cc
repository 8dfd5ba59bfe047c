// TransformerModel: computes logits from the residual stream after the last layer.
#include <algorithm>

#include "engine/model/hidden_values.h"
#include "engine/model/transformer.h"
#include "kernels/base/status_macros.h"
#include "kernels/ops.h"

namespace tidepool::engine {

using kernels::Activation;
using kernels::MatrixView;

// Computes the head only for the requested rows of logits or argmax.
absl::StatusOr<StepOutput> TransformerModel::Head(const Pass& pass) const {
  const int64_t logits = pass.batch.logit_rows();
  std::vector<int64_t>& wanted = pass.rows->wanted;
  wanted.resize(logits + pass.batch.argmax_rows());
  int64_t next[] = {0, logits};  // next row of logits, and next argmax row
  int64_t first_row = 0;
  kernels::HeadTarget target;
  for (const RowSpan& span : pass.batch.spans) {
    for (const int32_t row : span.logit_rows) {
      wanted[next[span.argmax_vocab > 0]++] = first_row + row;
    }
    target.argmax_vocab = std::max<int64_t>(target.argmax_vocab, span.argmax_vocab);
    first_row += span.rows();
  }
  if (!pass.dry() && pass.rows->checks.at_once()) RETURN_IF_ERROR(CheckWantedRows(pass));
  const auto count = static_cast<int64_t>(wanted.size());
  const MatrixView rows = pass.arena->AllocateMatrix(count, config_.hidden_size);
  if (count == 0) {
    RETURN_IF_ERROR(Observe("norm", pass, rows));
    return EndHead(pass, target);
  }
  pass.backend->GatherRows(pass.x, wanted, rows);
  const Activation hidden =
      pass.backend->Norm(rows, weights_.final_norm, config_.norm_eps, pass.arena);
  RETURN_IF_ERROR(Observe("norm", pass, hidden.values));
  target.weight = weights_.head.weight;
  target.bias = weights_.head.bias;
  target.scale = config_.logit_scale;
  target.soft_cap = config_.logit_softcap;
  target.out = pass.arena->AllocateMatrix(logits, config_.vocab_size);
  // The size does not depend on how many of the rows are argmax rows. So a pass in which logits are
  // requested for all rows needs the most memory.
  target.argmax = absl::MakeSpan(pass.arena->Allocate<kernels::ArgMax>(count),
                                 static_cast<size_t>(count - logits));
  if (HeadHasTwoTerms()) {
    target.terms = 2;
    pass.backend->MatMulHead(pass.backend->QuantizeInTwo(hidden, pass.arena), target, pass.arena);
  } else {
    pass.backend->MatMulHead(hidden, target, pass.arena);
  }
  return EndHead(pass, target);
}

// Finishes the checks of the pass, and copies the results to the host.
absl::StatusOr<StepOutput> TransformerModel::EndHead(const Pass& pass,
                                                     const kernels::HeadTarget& target) const {
  StepOutput output = {target.out, target.argmax};
  if (pass.dry()) return output;
  if (!pass.rows->checks.at_once()) {
    RETURN_IF_ERROR(pass.rows->checks.Finish());
    RETURN_IF_ERROR(CheckWantedRows(pass));
  }
  if (!on_host_) {
    HostCopies& copies = pass.rows->copies;
    const auto copy_out = [&](const auto* from, size_t count, auto* to) -> absl::Status {
      if (count == 0) return absl::OkStatus();
      if (to->size() < count) to->resize(count);
      return pass.backend->CopyOut(
          reinterpret_cast<const std::byte*>(from),
          {reinterpret_cast<std::byte*>(to->data()), count * sizeof(*from)});
    };
    RETURN_IF_ERROR(copy_out(target.out.data, target.out.rows * target.out.cols, &copies.logits));
    RETURN_IF_ERROR(copy_out(target.argmax.data(), target.argmax.size(), &copies.argmax));
    output.logits = {copies.logits.data(), target.out.rows, target.out.cols};
    output.argmax = absl::MakeConstSpan(copies.argmax).first(target.argmax.size());
  }
  RETURN_IF_ERROR(CheckLogits(output.logits));
  return output;
}

// Checks the requested rows of the residual stream, in the order of the batch.
absl::Status TransformerModel::CheckWantedRows(const Pass& pass) const {
  int64_t first_row = 0;
  for (const RowSpan& span : pass.batch.spans) {
    for (const int32_t row : span.logit_rows) {
      RETURN_IF_ERROR(CheckNotZero(pass.rows->checks.zero_since()[first_row + row]));
    }
    first_row += span.rows();
  }
  return absl::OkStatus();
}

// After the head, no layer averages out rounding errors. So int8 rows would cost more precision
// here than in any other product (a third of the KL divergence from exact results). Therefore each
// row is split into two int8 rows: its rounded value, and the remainder. Each weight is multiplied
// with both while it is in registers. Decoding is limited by reading weights, so the second
// multiplication costs almost nothing in decoding.
bool TransformerModel::HeadHasTwoTerms() const {
  return kernels::IsQuantised(weights_.head.weight.dtype) &&
         kernels::HasInt8Form(backend_->precision(), config_.hidden_size);
}

}  // namespace tidepool::engine
