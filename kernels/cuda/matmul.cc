// The ops that multiply. Each of them becomes a list of products (product.h).
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/cuda/argument_pack.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/glu.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/tensor_core.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {
namespace {

// Maximum number of floats of the up projection that DeviceScratch holds. If a gated FFN needs
// more, its rows are computed in parts. (A part of GroupedFfn has at least one whole group.)
constexpr int64_t kMaxUpFloats = int64_t{8} << 20;

const float* BiasOf(absl::Span<const float> bias) { return bias.empty() ? nullptr : bias.data(); }

bool SameGlu(const Glu& a, const Glu& b) {
  return a.form == b.form && a.alpha == b.alpha && a.limit == b.limit;
}

ProductJob JobOf(const PackedMatrix& weight, absl::Span<const float> bias, MatrixView out) {
  return {.panels = weight.data,
          .bias = BiasOf(bias),
          .out = out.data,
          .out_stride = out.stride,
          .outputs = static_cast<int32_t>(weight.rows)};
}

// Returns rows [first, first + count) of a buffer.
ActivationBuffer RowsOf(const ActivationBuffer& buffer, int64_t first, int64_t count) {
  ActivationBuffer part;
  part.values = buffer.values.RowRange(first, count);
  if (buffer.quants == nullptr) return part;
  const int64_t cols = buffer.values.cols;
  part.quants = buffer.quants + first * cols;
  part.scales = buffer.scales + first * (cols / kQuantBlock);
  part.sums = buffer.sums + first * (cols / kQuantBlock);
  part.half_sums = buffer.half_sums + first * (cols / kHalfBlock);
  return part;
}

// A part of GroupedFfn: some groups, whose rows follow each other in `hidden`.
struct GroupPart {
  absl::Span<const ExpertGroup> groups;
  ActivationBuffer hidden;
};

// Computes the inner FFN of a part's groups.
void ComputeHidden(const CudaContext& context, const JobInput& x, int64_t cols,
                   const GroupPart& part) {
  const ActivationBuffer& hidden = part.hidden;
  const MatrixView up(context.scratch->Reserve<float>(hidden.values.rows * hidden.values.cols),
                      hidden.values.rows, hidden.values.cols);
  ProductList list(x, cols);
  int32_t first = 0;
  for (const ExpertGroup& group : part.groups) {
    const FfnWeights& ffn = *group.weights;
    const auto add = [&](const PackedMatrix& weight, absl::Span<const float> bias, MatrixView out) {
      ProductJob job = JobOf(weight, bias, out);
      job.first = job.out_first = first;
      job.rows = static_cast<int32_t>(group.rows.size());
      list.Add(weight.dtype, job);
    };
    add(ffn.gate, ffn.gate_bias, hidden.values);
    add(ffn.up, ffn.up_bias, up);
    first += static_cast<int32_t>(group.rows.size());
  }
  list.Start(context);
  // In practice, groups with the same GLU function follow each other, so one call is enough for
  // them.
  int64_t begin = 0;
  int64_t end = 0;
  for (size_t g = 0; g < part.groups.size(); ++g) {
    end += static_cast<int64_t>(part.groups[g].rows.size());
    const Glu& glu = part.groups[g].weights->glu;
    if (g + 1 < part.groups.size() && SameGlu(glu, part.groups[g + 1].weights->glu)) continue;
    ApplyGlu(context, up.RowRange(begin, end - begin), glu, RowsOf(hidden, begin, end - begin));
    begin = end;
  }
}

void ComputeDown(const CudaContext& context, const GroupPart& part, const int32_t* out_rows,
                 MatrixView out) {
  JobInput input = InputOf(part.hidden.View());
  input.out_rows = out_rows;
  ProductList list(input, part.hidden.values.cols);
  int32_t first = 0;
  for (const ExpertGroup& group : part.groups) {
    const FfnWeights& ffn = *group.weights;
    ProductJob job = JobOf(ffn.down, ffn.down_bias, out);
    job.first = job.out_first = first;
    job.rows = static_cast<int32_t>(group.rows.size());
    list.Add(ffn.down.dtype, job);
    first += job.rows;
  }
  list.Start(context);
}

}  // namespace

void MultiplyTargets(const CudaContext& context, const Activation& x,
                     absl::Span<const MatMulTarget> targets) {
  if (targets.empty()) return;
  ProductList list(InputOf(x), x.values.cols);
  for (const MatMulTarget& target : targets) {
    if (UsesTensorCores(context, target.weight, x.values.rows)) {
      TensorCoreTarget(context, x, 0, target);
      continue;
    }
    ProductJob job = JobOf(target.weight, target.bias, target.out);
    job.rows = static_cast<int32_t>(x.values.rows);
    job.add = target.store == Store::kAdd;
    list.Add(target.weight.dtype, job);
  }
  list.Start(context);
}

void MultiplyHeads(const CudaContext& context, const Activation& x,
                   absl::Span<const PackedMatrix> weights, MatrixView out) {
  if (UsesTensorCores(context, weights[0], x.values.rows)) {
    return TensorCoreHeads(context, x, weights, out);
  }
  ProductList list(InputOf(x), weights[0].cols);
  for (size_t h = 0; h < weights.size(); ++h) {
    ProductJob job = JobOf(weights[h], {}, out);
    job.out += static_cast<int64_t>(h) * weights[h].rows;
    job.column = static_cast<int32_t>(static_cast<int64_t>(h) * weights[h].cols);
    job.rows = static_cast<int32_t>(x.values.rows);
    list.Add(weights[h].dtype, job);
  }
  list.Start(context);
}

void MultiplyGlu(const CudaContext& context, const Activation& x, const FfnWeights& ffn,
                 const ActivationBuffer& out) {
  if (UsesTensorCores(context, ffn, x.values.rows)) return TensorCoreGlu(context, x, ffn, out);
  const int64_t width = ffn.gate.rows;
  const int64_t step = std::max<int64_t>(1, kMaxUpFloats / std::max<int64_t>(1, width));
  for (int64_t first = 0; first < x.values.rows; first += step) {
    const int64_t rows = std::min(step, x.values.rows - first);
    const ActivationBuffer part = RowsOf(out, first, rows);
    const MatrixView up(context.scratch->Reserve<float>(rows * width), rows, width);
    ProductList list(InputOf(x), x.values.cols);
    const auto add = [&](const PackedMatrix& weight, absl::Span<const float> bias, MatrixView to) {
      ProductJob job = JobOf(weight, bias, to);
      job.first = static_cast<int32_t>(first);
      job.rows = static_cast<int32_t>(rows);
      list.Add(weight.dtype, job);
    };
    add(ffn.gate, ffn.gate_bias, part.values);
    add(ffn.up, ffn.up_bias, up);
    list.Start(context);
    ApplyGlu(context, up, ffn.glu, part);
  }
}

void MultiplyGroups(const CudaContext& context, const Activation& x,
                    absl::Span<const ExpertGroup> groups, MatrixView out, Arena* arena) {
  if (groups.empty()) return;
  if (UsesTensorCores(context, groups)) return TensorCoreGroups(context, x, groups, out, arena);
  const size_t mark = arena->used();
  const GroupScratch scratch = AllocateGroupScratch(groups, context.precision, arena);
  std::vector<int32_t> rows;
  std::vector<int32_t> out_rows;
  for (const ExpertGroup& group : groups) {
    rows.insert(rows.end(), group.rows.begin(), group.rows.end());
    out_rows.insert(out_rows.end(), group.out_rows.begin(), group.out_rows.end());
  }
  if (!rows.empty()) {
    ArgumentPack pack;
    const auto x_rows = pack.Add(rows);
    const auto to_rows = pack.Add(out_rows);
    const std::byte* const packed = pack.Carry(context.staging);
    const int64_t width = scratch.hidden.values.cols;
    int64_t first = 0;
    for (size_t g = 0; g < groups.size();) {
      // A part has as many groups as the scratch memory holds, but at least one.
      size_t end = g;
      int64_t count = 0;
      do {
        count += static_cast<int64_t>(groups[end++].rows.size());
      } while (end < groups.size() &&
               (count + static_cast<int64_t>(groups[end].rows.size())) * width <= kMaxUpFloats);
      const GroupPart part = {groups.subspan(g, end - g), RowsOf(scratch.hidden, first, count)};
      JobInput input = InputOf(x);
      input.x_rows = x_rows.In(packed) + first;
      ComputeHidden(context, input, x.values.cols, part);
      ComputeDown(context, part, to_rows.In(packed) + first, out);
      first += count;
      g = end;
    }
  }
  arena->ResetTo(mark);
}

}  // namespace tidepool::kernels::cuda
