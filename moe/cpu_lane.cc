#include "moe/cpu_lane.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/counting_backend.h"
#include "kernels/packed_matrix.h"
#include "moe/bounded_moe_layer.h"

namespace tidepool::moe {
namespace {

using kernels::Activation;
using kernels::Arena;
using kernels::ExpertGroup;
using kernels::MatrixView;
using kernels::PackedMatrix;

int64_t BytesOf(const PackedMatrix& matrix) {
  return static_cast<int64_t>(kernels::PackedBytes(matrix.dtype, matrix.rows, matrix.cols));
}

int64_t BytesOf(const kernels::FfnWeights& expert) {
  return BytesOf(expert.gate) + BytesOf(expert.up) + BytesOf(expert.down);
}

}  // namespace

std::vector<std::vector<ExpertGroup>> InCalls(absl::Span<const ExpertGroup> groups, int64_t most) {
  std::vector<std::vector<ExpertGroup>> calls(1);
  size_t room = static_cast<size_t>(most);
  for (const ExpertGroup& group : groups) {
    for (size_t begin = 0; begin < group.rows.size();) {
      if (room == 0) {
        calls.emplace_back();
        room = static_cast<size_t>(most);
      }
      const size_t count = std::min(room, group.rows.size() - begin);
      calls.back().push_back(
          {group.weights, group.rows.subspan(begin, count), group.out_rows.subspan(begin, count)});
      begin += count;
      room -= count;
    }
  }
  return calls;
}

CpuLane::CpuLane(kernels::KernelBackend* cpu, kernels::KernelBackend* device,
                 const base::Clock* clock)
    : cpu_(cpu),
      device_(device),
      clock_(clock),
      counting_(kernels::MakeCountingBackend(cpu->precision(), cpu->threads())) {}

void CpuLane::Begin(const ExpertPlan* plan, kernels::ConstMatrixView x, int64_t call_bytes) {
  plan_ = plan;
  x_ = x;
  call_bytes_ = call_bytes;
  is_empty_ = true;
}

// Allocates the layer's memory, and converts x. Not called for a layer without experts for the CPU.
void CpuLane::Allocate(const kernels::FfnWeights& expert) {
  call_rows_ = CallRows(call_bytes_, expert.gate.rows);
  const auto pairs = static_cast<int64_t>(plan_->tokens.size());
  const auto call = static_cast<size_t>(std::min(pairs, call_rows_));
  const ExpertGroup group = {&expert, plan_->tokens.subspan(0, call), plan_->rows.subspan(0, call)};
  Arena counting = Arena::Counting();
  counting.AllocateMatrix(pairs, x_.cols);
  const Activation x = counting_->Quantize(x_, &counting);
  counting_->GroupedFfn(x, {&group, 1}, MatrixView(), &counting);
  if (!arena_.has_value() || arena_->capacity() < counting.high_water()) {
    arena_.emplace(counting.high_water());
  }
  arena_->Reset();
  out_ = arena_->AllocateMatrix(pairs, x_.cols);
  activation_ = cpu_->Quantize(x_, &*arena_);
  is_empty_ = false;
}

void CpuLane::Compute(absl::Span<const ReadyExpert> wave, MatrixView expert_out,
                      ExpertSource* source) {
  std::vector<ExpertGroup> groups;
  std::vector<size_t> experts;
  HostWork work;
  for (const ReadyExpert& ready : wave) {
    if (ready.place != Place::kHost) continue;
    CHECK(plan_ != nullptr) << "the CPU must not compute expert " << ready.expert;
    const size_t i = plan_->Find(ready.expert);
    const auto count = static_cast<size_t>(plan_->RowsOf(i));
    groups.push_back({ready.weights, plan_->tokens.subspan(plan_->Begin(i), count),
                      plan_->rows.subspan(plan_->Begin(i), count)});
    experts.push_back(i);
    const int64_t bytes = BytesOf(*ready.weights);
    work.bytes += bytes;
    work.row_bytes += bytes * static_cast<int64_t>(count);
  }
  if (groups.empty()) return;
  if (is_empty_) Allocate(*groups[0].weights);
  const absl::Duration start = clock_->Monotonic();
  for (const std::vector<ExpertGroup>& call : InCalls(groups, call_rows_)) {
    cpu_->GroupedFfn(activation_, call, out_, &*arena_);
  }
  CopyRows(experts, expert_out);
  work.time = clock_->Monotonic() - start;
  source->NoteHostWork(work);
}

// Rows of experts that follow each other in the plan are copied together.
void CpuLane::CopyRows(absl::Span<const size_t> experts, MatrixView expert_out) {
  std::vector<size_t> sorted(experts.begin(), experts.end());
  std::sort(sorted.begin(), sorted.end());
  for (size_t first = 0; first < sorted.size();) {
    size_t last = first;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    const int64_t begin = plan_->Begin(sorted[first]);
    const int64_t rows = plan_->ends[sorted[last]] - begin;
    const MatrixView from = out_.RowRange(begin, rows);
    device_->CopyIn({reinterpret_cast<const std::byte*>(from.data),
                     static_cast<size_t>(rows * from.cols) * sizeof(float)},
                    reinterpret_cast<std::byte*>(expert_out.Row(begin)));
    first = last + 1;
  }
}

}  // namespace tidepool::moe
