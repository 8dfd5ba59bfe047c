#include "kernels/cuda/tensor_core.h"

#include <algorithm>
#include <vector>

#include "kernels/cuda/argument_pack.h"
#include "kernels/cuda/tensor_core_call.cu.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {
namespace {

ConstInt8Rows RowsOf(const Activation& x) {
  return {x.quants, x.scales, x.sums, x.half_sums, x.values.cols};
}

// Returns the part of a call that does not depend on the output.
TensorCoreCall CallOf(const Activation& x, const PackedMatrix& weight) {
  TensorCoreCall call;
  call.x = RowsOf(x);
  call.row_blocks = static_cast<int>(x.values.cols / kQuantBlock);
  call.panel_bytes = PanelBytes(weight.dtype, weight.cols);
  call.blocks = static_cast<int>(weight.cols / kQuantBlock);
  call.outputs = static_cast<int>(weight.rows);
  return call;
}

void SetOutput(MatrixView out, TensorCoreCall* call) {
  call->out = out.data;
  call->out_stride = out.stride;
}

// Sets the output of the inner part of an FFN, and its int8 form.
void SetHidden(const ActivationBuffer& out, const Glu& glu, TensorCoreCall* call) {
  SetOutput(out.values, call);
  call->glu = glu;
  call->int8 = Int8RowsOf(out);
}

TileForm FormFor(int64_t rows, bool glu) {
  if (rows >= kLargeRows) return glu ? TileForm::kLargeGlu : TileForm::kLarge;
  return glu ? TileForm::kSmallGlu : TileForm::kSmall;
}

void LaunchForm(const CudaContext& context, DType dtype, TileForm form, const TensorCoreCall& call,
                int row_tiles) {
  if (row_tiles == 0 || call.outputs == 0) return;
  VisitQuantType(
      dtype, [&](auto type) { LaunchTensorCores<type()>(context.stream, form, call, row_tiles); });
}

// Starts a product with one job.
void LaunchJob(const CudaContext& context, DType dtype, bool glu, const TensorCoreCall& call) {
  const TileForm form = FormFor(call.job.count, glu);
  const int rows = ShapeOf(form).rows();
  LaunchForm(context, dtype, form, call, (call.job.count + rows - 1) / rows);
}

// Starts a product with several jobs.
void LaunchJobs(const CudaContext& context, DType dtype, TileForm form,
                const std::vector<TensorCoreJob>& jobs, TensorCoreCall* call) {
  std::vector<RowTile> tiles;
  for (size_t j = 0; j < jobs.size(); ++j) {
    for (int first = 0; first < jobs[j].count; first += ShapeOf(form).rows()) {
      tiles.push_back({static_cast<int>(j), first});
    }
  }
  ArgumentPack pack;
  const auto job_array = pack.Add(jobs);
  const auto tile_array = pack.Add(tiles);
  const std::byte* const packed = pack.Carry(context.staging);
  call->jobs = job_array.In(packed);
  call->tiles = tile_array.In(packed);
  LaunchForm(context, dtype, form, *call, static_cast<int>(tiles.size()));
}

int64_t RowsOf(absl::Span<const ExpertGroup> groups) {
  int64_t rows = 0;
  for (const ExpertGroup& group : groups) rows += static_cast<int64_t>(group.rows.size());
  return rows;
}

// Returns the row numbers of all groups, one group after another.
std::vector<int32_t> JoinRows(absl::Span<const ExpertGroup> groups,
                              absl::Span<const int32_t> ExpertGroup::*member) {
  std::vector<int32_t> all;
  for (const ExpertGroup& group : groups) {
    const absl::Span<const int32_t> rows = group.*member;
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

bool SameTypes(const FfnWeights& a, const FfnWeights& b) {
  return a.gate.dtype == b.gate.dtype && a.down.dtype == b.down.dtype && a.glu.form == b.glu.form &&
         a.glu.alpha == b.glu.alpha && a.glu.limit == b.glu.limit;
}

}  // namespace

bool UsesTensorCores(const CudaContext& context, const PackedMatrix& weight, int64_t rows) {
  return context.precision == Precision::kFast && IsQuantised(weight.dtype) &&
         rows >= kMinTensorCoreRows;
}

bool UsesTensorCores(const CudaContext& context, const FfnWeights& ffn, int64_t rows) {
  return ffn.gate.dtype == ffn.up.dtype && UsesTensorCores(context, ffn.gate, rows);
}

bool UsesTensorCores(const CudaContext& context, absl::Span<const ExpertGroup> groups) {
  if (groups.empty()) return false;
  const FfnWeights& first = *groups[0].weights;
  const int64_t rows = RowsOf(groups) / static_cast<int64_t>(groups.size());
  return UsesTensorCores(context, first.down, rows) &&
         std::all_of(groups.begin(), groups.end(), [&](const ExpertGroup& group) {
           return UsesTensorCores(context, *group.weights, rows) &&
                  SameTypes(*group.weights, first);
         });
}

void TensorCoreTarget(const CudaContext& context, const Activation& x, int64_t first_row,
                      const MatMulTarget& target) {
  TensorCoreCall call = CallOf(x, target.weight);
  SetOutput(target.out, &call);
  call.store = target.store;
  call.job.weight = target.weight.data;
  call.job.bias = target.bias.empty() ? nullptr : target.bias.data();
  call.job.first_row = first_row;
  call.job.count = static_cast<int>(target.out.rows);
  LaunchJob(context, target.weight.dtype, /*glu=*/false, call);
}

void TensorCoreHeads(const CudaContext& context, const Activation& x,
                     absl::Span<const PackedMatrix> weights, MatrixView out) {
  TensorCoreCall call = CallOf(x, weights[0]);
  SetOutput(out, &call);
  std::vector<TensorCoreJob> jobs(weights.size());
  for (size_t head = 0; head < weights.size(); ++head) {
    TensorCoreJob& job = jobs[head];
    job.weight = weights[head].data;
    job.x_column = static_cast<int64_t>(head) * weights[head].cols;
    job.out_column = static_cast<int64_t>(head) * weights[head].rows;
    job.count = static_cast<int>(x.values.rows);
  }
  LaunchJobs(context, weights[0].dtype, FormFor(x.values.rows, /*glu=*/false), jobs, &call);
}

void TensorCoreGlu(const CudaContext& context, const Activation& x, const FfnWeights& ffn,
                   const ActivationBuffer& out) {
  TensorCoreCall call = CallOf(x, ffn.gate);
  SetHidden(out, ffn.glu, &call);
  call.job.weight = ffn.gate.data;
  call.job.up = ffn.up.data;
  call.job.bias = ffn.gate_bias.empty() ? nullptr : ffn.gate_bias.data();
  call.job.up_bias = ffn.up_bias.empty() ? nullptr : ffn.up_bias.data();
  call.job.count = static_cast<int>(x.values.rows);
  LaunchJob(context, ffn.gate.dtype, /*glu=*/true, call);
}

void TensorCoreGroups(const CudaContext& context, const Activation& x,
                      absl::Span<const ExpertGroup> groups, MatrixView out, Arena* arena) {
  const size_t mark = arena->used();
  const FfnWeights& first = *groups[0].weights;
  const ActivationBuffer hidden = AllocateGroupScratch(groups, context.precision, arena).hidden;
  ArgumentPack pack;
  const auto row_array = pack.Add(JoinRows(groups, &ExpertGroup::rows));
  const auto out_row_array = pack.Add(JoinRows(groups, &ExpertGroup::out_rows));
  const std::byte* const packed = pack.Carry(context.staging);
  const int32_t* const rows = row_array.In(packed);
  const int32_t* const out_rows = out_row_array.In(packed);
  std::vector<TensorCoreJob> inner(groups.size());
  std::vector<TensorCoreJob> outer(groups.size());
  int64_t offset = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    const FfnWeights& ffn = *groups[g].weights;
    inner[g].weight = ffn.gate.data;
    inner[g].up = ffn.up.data;
    inner[g].bias = ffn.gate_bias.empty() ? nullptr : ffn.gate_bias.data();
    inner[g].up_bias = ffn.up_bias.empty() ? nullptr : ffn.up_bias.data();
    inner[g].rows = rows + offset;
    inner[g].first_out_row = offset;
    outer[g].weight = ffn.down.data;
    outer[g].bias = ffn.down_bias.empty() ? nullptr : ffn.down_bias.data();
    outer[g].first_row = offset;
    outer[g].out_rows = out_rows + offset;
    inner[g].count = outer[g].count = static_cast<int>(groups[g].rows.size());
    offset += inner[g].count;
  }
  const int64_t mean_rows = offset / static_cast<int64_t>(groups.size());
  TensorCoreCall call = CallOf(x, first.gate);
  SetHidden(hidden, first.glu, &call);
  LaunchJobs(context, first.gate.dtype, FormFor(mean_rows, /*glu=*/true), inner, &call);
  TensorCoreCall down = CallOf(hidden.View(), first.down);
  SetOutput(out, &down);
  LaunchJobs(context, first.down.dtype, FormFor(mean_rows, /*glu=*/false), outer, &down);
  arena->ResetTo(mark);
}

}  // namespace tidepool::kernels::cuda
