#include "kernels/ops.h"

#include <algorithm>

#include "kernels/attend_bounds.h"
#include "kernels/base/check.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

void CheckSpans(int64_t rows, const KvLayer& layer, absl::Span<const KvSpan> spans) {
  CHECK(layer.kv_heads > 0 && layer.k_dim > 0 && layer.v_dim > 0 && layer.arena != nullptr);
  CHECK(IsKvType(layer.dtype, layer.k_dim) && IsKvType(layer.dtype, layer.v_dim))
      << "KV of type " << DTypeName(layer.dtype) << " and dimensions " << layer.k_dim << ", "
      << layer.v_dim;
  CHECK(!layer.values_in_keys || layer.v_dim <= layer.k_dim)
      << "values of " << layer.v_dim << " elements in keys of " << layer.k_dim;
  for (const KvSpan& span : spans) {
    CHECK(span.rows >= 0 && span.first_row >= 0 && span.first_row + span.rows <= rows)
        << "span of rows " << span.first_row << " + " << span.rows << " in a batch of " << rows;
    CHECK(span.first_slot >= 0 && span.window >= 0);
    const int64_t slots = span.first_slot + span.rows;
    CHECK(span.rows == 0 || slots <= static_cast<int64_t>(span.blocks.size()) * kKvBlockTokens)
        << slots << " slots in " << span.blocks.size() << " blocks";
  }
}

// `units` and `unit_bytes` are those that the op needs.
void CheckState(int64_t rows, const StateArray& state, absl::Span<const StateSpan> spans,
                int64_t units, int64_t unit_bytes) {
  CHECK(state.arena != nullptr);
  CHECK_EQ(static_cast<int64_t>(state.units.size()), units);
  CHECK_EQ(static_cast<int64_t>(state.unit_bytes), unit_bytes);
  int32_t parts = 0;
  for (const StateUnit& unit : state.units) parts = std::max(parts, unit.part + 1);
  const auto is_table = [parts](absl::Span<const int32_t> blocks) {
    return static_cast<int64_t>(blocks.size()) >= parts;
  };
  for (const StateSpan& span : spans) {
    CHECK(span.rows >= 0 && span.first_row >= 0 && span.first_row + span.rows <= rows)
        << "span of rows " << span.first_row << " + " << span.rows << " in a batch of " << rows;
    if (span.rows == 0) continue;
    CHECK((span.in.empty() || is_table(span.in)) && is_table(span.out))
        << "states of " << span.in.size() << " and " << span.out.size() << " blocks, not " << parts;
    int64_t done = 1;
    for (const StateSnapshot& snapshot : span.snapshots) {
      CHECK(snapshot.rows >= done && snapshot.rows <= span.rows && is_table(snapshot.blocks))
          << "snapshot after " << snapshot.rows << " of " << span.rows << " rows";
      done = snapshot.rows;
    }
  }
}

bool IsShape(ConstMatrixView x, int64_t rows, int64_t cols) {
  return x.rows == rows && x.cols == cols;
}

bool IsBiasOf(absl::Span<const float> bias, const PackedMatrix& weight) {
  return bias.empty() || static_cast<int64_t>(bias.size()) == weight.rows;
}

}  // namespace

bool IsQuantised(DType dtype) { return BlockElements(dtype) > 1; }

bool HasInt8Form(Precision precision, int64_t cols) {
  return precision == Precision::kFast && cols % kQuantBlock == 0;
}

ActivationBuffer AllocateActivation(int64_t rows, int64_t cols, Precision precision,
                                    ActivationParts parts, Arena* arena) {
  ActivationBuffer buffer;
  buffer.values = parts == ActivationParts::kAll ? arena->AllocateMatrix(rows, cols)
                                                 : MatrixView(nullptr, rows, cols);
  if (!HasInt8Form(precision, cols)) return buffer;
  const int64_t blocks = cols / kQuantBlock;
  buffer.quants = arena->Allocate<int8_t>(rows * cols);
  buffer.scales = arena->Allocate<float>(rows * blocks);
  buffer.sums = arena->Allocate<float>(rows * blocks);
  buffer.half_sums = arena->Allocate<int16_t>(rows * 2 * blocks);
  return buffer;
}

size_t ActivationBytes(int64_t rows, int64_t cols) {
  const int64_t blocks = (cols + kQuantBlock - 1) / kQuantBlock;
  return rows * (cols * (sizeof(float) + 1) + blocks * 3 * sizeof(float)) + 5 * kAlignment;
}

ArgMax* AllocateHeadScratch(const HeadTarget& target, int threads, Arena* arena) {
  return arena->Allocate<ArgMax>(threads * target.rows());
}

GroupScratch AllocateGroupScratch(absl::Span<const ExpertGroup> groups, Precision precision,
                                  Arena* arena) {
  int64_t rows = 0;
  for (const ExpertGroup& group : groups) rows += static_cast<int64_t>(group.rows.size());
  GroupScratch scratch;
  scratch.offsets = arena->Allocate<int64_t>(std::max<int64_t>(rows, groups.size()));
  scratch.hidden = AllocateActivation(rows, groups[0].weights->gate.rows, precision,
                                      ActivationParts::kAll, arena);
  return scratch;
}

ActivationBuffer AllocateAttended(const AttendCall& call, Precision precision, Arena* arena) {
  return AllocateActivation(call.q.rows, int64_t{call.heads} * call.layer.v_dim, precision,
                            ActivationParts::kAll, arena);
}

size_t AttendScratchBytes(const AttendCall& call, int threads) {
  const KvLayer& layer = call.layer;
  const int64_t dims = layer.k_dim + layer.v_dim;
  // Number of floats of a fold, or of a segment's part of a fold: v_dim, rounded up, and two more.
  const int64_t fold = (layer.v_dim + kFoldUnit - 1) / kFoldUnit * kFoldUnit + 2;
  // Floats per thread. For one block: its keys, values and scales. For each query vector of a job:
  // the scores, its fold, the part of a segment, and 32 bytes for positions and visible slots. For
  // all jobs: the folds that several threads compute, and the parts that are not merged yet.
  const int64_t scratch = dims * (kKvBlockTokens + 1) + kFoldUnit +
                          kFoldVectors * (kKvSegmentTokens + 2 * fold + 8) +
                          (kAttendPartsPerThread + kAttendLongFoldsPerThread) * fold;
  // The query vectors of a job belong to one span and KV head. Each span has at least one row.
  const int64_t jobs = call.q.rows * call.heads / kFoldVectors + call.q.rows * layer.kv_heads;
  return jobs * kAttendJobBytes +
         threads * (scratch * sizeof(float) + kAttendSmallParts * kAlignment) + 8 * kAlignment;
}

SlotRange VisibleSlots(const KvSpan& span, int64_t row) {
  const int64_t slot = span.first_slot + row;
  const int64_t end = span.mask == Mask::kCausal ? slot + 1 : span.first_slot + span.rows;
  const int64_t begin = span.window == 0 ? 0 : std::max<int64_t>(0, slot - span.window + 1);
  return {begin, end};
}

void CheckGatherRows(ConstMatrixView x, absl::Span<const int64_t> rows, ConstMatrixView out) {
  CHECK_EQ(static_cast<int64_t>(rows.size()), out.rows);
  CHECK_EQ(x.cols, out.cols);
  for (const int64_t row : rows) {
    CHECK(row >= 0 && row < x.rows) << "row " << row << " of " << x.rows;
  }
}

void CheckCopyHeads(const HeadCopy& copy, ConstMatrixView from, ConstMatrixView to) {
  CHECK_EQ(from.rows, to.rows);
  const auto fits = [&copy](int first, int dim, int64_t cols) {
    return first >= 0 && first + copy.cols <= dim &&
           (copy.heads - 1) * int64_t{dim} + first + copy.cols <= cols;
  };
  CHECK(copy.heads > 0 && copy.cols >= 0 && fits(copy.from_first, copy.from_dim, from.cols) &&
        fits(copy.to_first, copy.to_dim, to.cols))
      << copy.heads << " heads of " << copy.cols << " columns from " << copy.from_first << " of "
      << copy.from_dim << " to " << copy.to_first << " of " << copy.to_dim << ", in rows of "
      << from.cols << " and " << to.cols;
}

void CheckScanRows(ConstMatrixView x, float limit) {
  CHECK(limit > 0) << "limit " << limit;
  CHECK(x.cols <= INT32_MAX);
}

void CheckQuantizeInTwo(const Activation& x) {
  CHECK(x.quants != nullptr) << "the activation has no int8 form";
}

void CheckMatMul(const Activation& x, const PackedMatrix& weight, Precision precision) {
  CHECK_EQ(x.values.cols, weight.cols);
  CHECK(weight.cols % BlockElements(weight.dtype) == 0);
  CHECK(precision == Precision::kExact || !IsQuantised(weight.dtype) || x.values.rows == 0 ||
        x.quants != nullptr)
      << "a quantised weight needs the int8 form of x: make x with Quantize or Norm";
}

void CheckTarget(const Activation& x, const MatMulTarget& target, Precision precision) {
  CheckMatMul(x, target.weight, precision);
  CHECK_EQ(target.out.rows, x.values.rows);
  CHECK_EQ(target.out.cols, target.weight.rows);
  CHECK(IsBiasOf(target.bias, target.weight));
}

void CheckHead(const Activation& x, const HeadTarget& target, Precision precision) {
  CheckMatMul(x, target.weight, precision);
  CHECK(target.terms >= 1 && x.values.rows == target.terms * target.rows())
      << x.values.rows << " rows for " << target.terms << " terms of " << target.rows();
  CHECK(target.out.rows == 0 || target.out.cols == target.weight.rows);
  CHECK(IsBiasOf(target.bias, target.weight));
  CHECK(target.argmax.empty() ||
        (target.argmax_vocab >= 1 && target.argmax_vocab <= target.weight.rows))
      << "the best of " << target.argmax_vocab;
  CHECK(target.soft_cap >= 0) << "a soft-cap of " << target.soft_cap;
}

void CheckHeads(const Activation& x, absl::Span<const PackedMatrix> weights, ConstMatrixView out,
                Precision precision) {
  CHECK(!weights.empty());
  const PackedMatrix& first = weights[0];
  const auto heads = static_cast<int64_t>(weights.size());
  CHECK_EQ(x.values.cols, heads * first.cols);
  CHECK(out.rows == x.values.rows && out.cols == heads * first.rows)
      << out.cols << " outputs of " << heads << " heads of " << first.rows;
  for (const PackedMatrix& weight : weights) {
    CHECK(weight.dtype == first.dtype && weight.rows == first.rows && weight.cols == first.cols);
  }
  CHECK(precision == Precision::kExact || !IsQuantised(first.dtype) || x.values.rows == 0 ||
        x.quants != nullptr)
      << "quantised weights need the int8 form of x: make x with Quantize or Norm";
}

void CheckGlu(const Activation& x, const FfnWeights& ffn, Precision precision) {
  CheckMatMul(x, ffn.gate, precision);
  CheckMatMul(x, ffn.up, precision);
  CHECK_EQ(ffn.gate.rows, ffn.up.rows);
  CHECK(IsBiasOf(ffn.gate_bias, ffn.gate) && IsBiasOf(ffn.up_bias, ffn.up));
  CHECK(ffn.glu.form != GluForm::kClampedSwiGlu || ffn.glu.limit > 0) << ffn.glu.limit;
}

void CheckStoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
                  absl::Span<const KvSpan> spans) {
  CHECK_EQ(k.cols, int64_t{layer.kv_heads} * layer.k_dim);
  if (layer.values_in_keys) {
    CHECK_EQ(v.cols, 0);
  } else {
    CHECK_EQ(k.rows, v.rows);
    CHECK_EQ(v.cols, int64_t{layer.kv_heads} * layer.v_dim);
  }
  CheckSpans(k.rows, layer, spans);
}

void CheckAttend(const AttendCall& call) {
  CheckSpans(call.q.rows, call.layer, call.spans);
  CHECK(call.heads > 0 && call.heads % call.layer.kv_heads == 0)
      << call.heads << " query heads over " << call.layer.kv_heads << " KV heads";
  CHECK_EQ(call.q.cols, int64_t{call.heads} * call.layer.k_dim);
  CHECK(call.sinks.empty() || static_cast<int>(call.sinks.size()) == call.heads)
      << call.sinks.size() << " sinks of " << call.heads << " heads";
  CHECK(call.soft_cap >= 0) << "a soft-cap of " << call.soft_cap;
  CHECK(call.gate.data == nullptr ||
        IsShape(call.gate, call.q.rows, int64_t{call.heads} * call.layer.v_dim));
}

void CheckCausalConv(const CausalConvCall& call) {
  const MatrixView& x = call.x;
  CHECK(call.kernel >= 2 && call.kernel <= kMaxConvKernel) << "a kernel of " << call.kernel;
  CHECK_EQ(static_cast<int64_t>(call.weight.size()), x.cols * call.kernel);
  CHECK(call.bias.empty() || static_cast<int64_t>(call.bias.size()) == x.cols);
  CHECK(call.in_gate.data == nullptr || IsShape(call.in_gate, x.rows, x.cols));
  CHECK(call.out_gate.data == nullptr || IsShape(call.out_gate, x.rows, x.cols));
  CheckState(x.rows, call.state, call.spans, ConvUnits(x.cols), ConvUnitBytes(call.kernel));
}

void CheckDeltaNet(const DeltaNetCall& call) {
  const int64_t rows = call.q.rows;
  CHECK(call.k_heads > 0 && call.v_heads > 0 && call.v_heads % call.k_heads == 0)
      << call.v_heads << " V heads over " << call.k_heads << " K heads";
  CHECK(call.q.cols % call.k_heads == 0 && call.v.cols % call.v_heads == 0);
  CHECK(call.KeyDim() > 0 && call.KeyDim() <= kMaxDeltaKeyDim && call.ValueDim() > 0)
      << "heads of " << call.KeyDim() << " and " << call.ValueDim();
  CHECK(IsShape(call.k, rows, call.q.cols) && call.v.rows == rows);
  CHECK(IsShape(call.out, rows, call.v.cols));
  CHECK(IsShape(call.a, rows, call.v_heads) && IsShape(call.b, rows, call.v_heads));
  CHECK(static_cast<int>(call.decay.size()) == call.v_heads &&
        static_cast<int>(call.dt_bias.size()) == call.v_heads);
  CheckState(rows, call.state, call.spans, call.v_heads,
             DeltaUnitBytes(call.KeyDim(), call.ValueDim()));
}

void CheckGatedNorm(ConstMatrixView x, ConstMatrixView z, absl::Span<const float> weight) {
  CHECK(!weight.empty() && x.cols % static_cast<int64_t>(weight.size()) == 0)
      << x.cols << " columns, heads of " << weight.size();
  CHECK(IsShape(z, x.rows, x.cols));
}

void CheckRope(ConstMatrixView x, int head_dim, ConstMatrixView cos, ConstMatrixView sin) {
  CHECK(head_dim > 0 && x.cols % head_dim == 0) << x.cols << " columns, heads of " << head_dim;
  CHECK(cos.rows == x.rows && sin.rows == x.rows && cos.cols == sin.cols);
  CHECK_LE(2 * cos.cols, head_dim);
}

void CheckGate(ConstMatrixView logits, const GateSpec& spec) {
  CHECK_EQ(logits.cols, spec.experts);
  CHECK(spec.groups > 0 && spec.experts % spec.groups == 0)
      << spec.experts << " experts in " << spec.groups << " groups";
  CHECK(spec.groups_kept > 0 && spec.groups_kept <= spec.groups)
      << spec.groups_kept << " of " << spec.groups << " groups";
  const int remaining = spec.experts / spec.groups * spec.groups_kept;
  CHECK(spec.top_k > 0 && spec.top_k <= remaining)
      << "top " << spec.top_k << " of " << remaining << " experts";
  CHECK(spec.selection_bias.empty() ||
        static_cast<int>(spec.selection_bias.size()) == spec.experts);
}

void CheckGroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, ConstMatrixView out,
                     Precision precision) {
  for (const ExpertGroup& group : groups) {
    const FfnWeights& weights = *group.weights;
    CheckGlu(x, weights, precision);
    CHECK_EQ(weights.gate.rows, weights.down.cols);
    CHECK(IsBiasOf(weights.down_bias, weights.down));
    CHECK_EQ(weights.gate.rows, groups[0].weights->gate.rows);
    CHECK_EQ(weights.down.rows, out.cols);
    CHECK(precision == Precision::kExact || !IsQuantised(weights.down.dtype) ||
          weights.down.cols % kQuantBlock == 0);
    CHECK_EQ(group.rows.size(), group.out_rows.size());
    for (const int32_t row : group.rows) CHECK(row >= 0 && row < x.values.rows) << "row " << row;
    for (const int32_t row : group.out_rows) CHECK(row >= 0 && row < out.rows) << "row " << row;
  }
}

void CheckExpertTerms(ConstMatrixView expert_out, const ExpertTerms& terms, ConstMatrixView sum) {
  CHECK_EQ(expert_out.cols, sum.cols);
  CHECK(terms.tokens.size() == terms.rows.size() && terms.weights.size() == terms.rows.size());
  for (size_t i = 0; i < terms.rows.size(); ++i) {
    CHECK(terms.rows[i] >= 0 && terms.rows[i] < expert_out.rows) << "row " << terms.rows[i];
    CHECK(terms.tokens[i] >= 0 && terms.tokens[i] < sum.rows) << "token " << terms.tokens[i];
  }
}

}  // namespace tidepool::kernels
