// KernelBackend::Attend. attention_plan.cu.h describes how the work is divided.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/attend_bounds.h"
#include "kernels/base/check.h"
#include "kernels/cuda/argument_pack.h"
#include "kernels/cuda/attention_block.cu.h"
#include "kernels/cuda/attention_fold.cu.h"
#include "kernels/cuda/attention_plan.cu.h"
#include "kernels/cuda/attention_scores.cu.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/kv_store_layout.cu.h"
#include "kernels/cuda/rows_device.cu.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {
namespace {

// About how many blocks of threads a processor computes at the same time.
constexpr int64_t kTasksPerProcessor = 4;
// Maximum bytes of shared memory of a task. All GPUs that the backend supports allow this size.
constexpr int kMaxSharedBytes = 96 * 1024;

template <DType kType, int R, int T>
TIDEPOOL_KERNEL_OF(kAttendThreads, 3)
AttendKernel(AttendArgs args, const AttendTask* tasks) {
  const AttendBlock<R, T> block(args, tasks[BlockX()]);
  const AttendScores<kType, R, T> scores(block);
  const AttendFold<kType, R, T> fold(block);
  block.Begin();
  BlockBarrier();
  for (int segment = block.task.begin; segment < block.task.end; ++segment) {
    scores.Score(segment);
    BlockBarrier();
    scores.Softmax(segment);
    BlockBarrier();
    fold.Fold(segment);
    BlockBarrier();
  }
  if (!block.IsSplit()) fold.Finish();
}

// Merges the parts of one query vector that a round has computed. Large because the threads of the
// block share its memory.
class PartMerge {
 public:
  TIDEPOOL_DEVICE PartMerge(const AttendArgs& args, const AttendSpan& span, int64_t row, int head)
      : args_(args), span_(span), row_(row), head_(head) {}

  // Between rounds, `states` has the softmax of each vector so far.
  TIDEPOOL_DEVICE void Run(SoftmaxState* states, const Int8Rows& int8) const {
    const TokenRange slots = SlotsOf(span_, row_ - span_.first_row);
    const int64_t first = span_.segment + args_.round * args_.round_segments;
    const int64_t last = first + args_.round_segments;
    const int64_t seen_begin = slots.begin / kKvSegmentTokens;
    const int64_t seen_end = (slots.end + kKvSegmentTokens - 1) / kKvSegmentTokens;
    const int64_t begin = seen_begin > first ? seen_begin : first;
    const int64_t end = seen_end < last ? seen_end : last;
    if (begin >= end) return;
    SoftmaxState* stored = states + span_.vectors + VectorOf();
    SoftmaxState state = {-__builtin_inff(), 0};
    if (begin > seen_begin) state = *stored;
    for (int64_t at = begin; at < end; at += kAttendThreads) {
      const int count = static_cast<int>(end - at < kAttendThreads ? end - at : kAttendThreads);
      const int64_t part = (at - first) * args_.split_vectors + span_.vectors + VectorOf();
      Prepare(part, count, &state);
      MergeColumns(part, count, at == seen_begin, &state);
      BlockBarrier();
    }
    if (end < seen_end) {
      if (ThreadIndex() == 0) *stored = state;
    } else {
      FinishColumns(state, int8);
    }
  }

  static constexpr int kSharedBytes = 5 * kAttendThreads * static_cast<int>(sizeof(float));

 private:
  TIDEPOOL_DEVICE int64_t VectorOf() const {
    return (row_ - span_.first_row) * args_.heads + head_;
  }
  TIDEPOOL_DEVICE static Shared<float> Array(int index) {
    return SharedArray<float>(index * kAttendThreads * static_cast<int>(sizeof(float)),
                              kAttendThreads);
  }
  TIDEPOOL_DEVICE float* Out() const {
    return args_.out + row_ * args_.out_stride + int64_t{head_} * args_.values.dim;
  }

  // Computes the factors that merge `count` parts. Also sets state->max to the maximum of all parts
  // so far.
  TIDEPOOL_DEVICE void Prepare(int64_t part, int count, SoftmaxState* state) const {
    const auto maxima = Array(0);
    const auto sums = Array(1);
    const int i = ThreadIndex();
    if (i < count) {
      const SoftmaxState segment = args_.part_states[part + i * args_.split_vectors];
      maxima[i] = segment.max;
      sums[i] = segment.sum;
    }
    BlockBarrier();
    const float start = state->max;
    float before = start;  // the maximum before part i
    float all = start;
    float mine = start;
    for (int p = 0; p < count; ++p) {
      const float max = maxima[p];
      if (p < i) before = max > before ? max : before;
      if (p == i) mine = max;
      all = max > all ? max : all;
    }
    if (i < count) {
      const float joint = mine > before ? mine : before;
      Array(2)[i] = Exp(before - joint);
      Array(3)[i] = Exp(mine - joint);
    }
    state->max = all;
    BlockBarrier();
  }

  // Merges the columns of the parts' sums, and the sums of their softmax.
  TIDEPOOL_DEVICE void MergeColumns(int64_t part, int count, bool is_first,
                                    SoftmaxState* state) const {
    const auto sums = Array(1);
    const auto keeps = Array(2);
    const auto takes = Array(3);
    const int64_t stride = args_.split_vectors * args_.part_stride;
    for (int col = ThreadIndex(); col < args_.values.dim; col += kAttendThreads) {
      const float* from = args_.part_sums + part * args_.part_stride + col;
      float fold = is_first ? 0.0f : Out()[col];
      TIDEPOOL_UNROLL_BY(16)
      for (int p = 0; p < count; ++p) {
        fold = __builtin_fmaf(from[p * stride], takes[p], fold * keeps[p]);
      }
      Out()[col] = fold;
    }
    for (int p = 0; p < count; ++p) {
      state->sum = __builtin_fmaf(sums[p], takes[p], state->sum * keeps[p]);
    }
  }

  // If there is an int8 form here, a head is a multiple of 32 columns, so whole warps are in the
  // loop.
  TIDEPOOL_DEVICE void FinishColumns(const SoftmaxState& state, const Int8Rows& int8) const {
    const FinishFactors factors = FinishOf(args_, head_, state);
    for (int c = ThreadIndex(); c < args_.values.dim; c += kAttendThreads) {
      const int64_t col = int64_t{head_} * args_.values.dim + c;
      const float value = FinishSum(args_, factors, Out()[c], row_, col);
      Out()[c] = value;
      if (int8.quants == nullptr) continue;
      QuantizeBlock(value, (row_ * args_.out_stride + col) / kQuantBlock, int8);
    }
  }

  const AttendArgs& args_;
  const AttendSpan& span_;
  const int64_t row_;
  const int head_;
};

// A block of threads merges the parts of one row and head.
TIDEPOOL_KERNEL_OF(kAttendThreads, 8)
MergeKernel(AttendArgs args, const int32_t* span_of_row, SoftmaxState* states, Int8Rows int8) {
  const int64_t row = BlockX() / args.heads;
  const int32_t index = span_of_row[row];
  if (index < 0 || args.spans[index].vectors < 0) return;
  const AttendSpan span = args.spans[index];
  PartMerge(args, span, row, BlockX() % args.heads).Run(states, int8);
}

using AttendKernelFunction = void (*)(AttendArgs, const AttendTask*);

template <DType kType>
AttendKernelFunction KernelOf(int vector_class) {
  static_assert(kClassVectors[0] == 4 && kClassVectors[1] == 8 && kClassVectors[2] == 16 &&
                kClassVectors[3] == 32);
  switch (vector_class) {
    case 0:
      return AttendKernel<kType, 4, 1>;
    case 1:
      return AttendKernel<kType, 8, 1>;
    case 2:
      return AttendKernel<kType, 8, 2>;
    default:
      return AttendKernel<kType, 8, 4>;
  }
}
AttendKernelFunction KernelOf(DType dtype, int vector_class) {
  switch (dtype) {
    case DType::kF32:
      return KernelOf<DType::kF32>(vector_class);
    case DType::kF16:
      return KernelOf<DType::kF16>(vector_class);
    case DType::kBF16:
      return KernelOf<DType::kBF16>(vector_class);
    default:
      return KernelOf<DType::kQ8_0>(vector_class);
  }
}

AttendLimits LimitsOf(const CudaContext& context, const AttendCall& call) {
  AttendLimits limits = {.tasks = kTasksPerProcessor * context.device.processors,
                         .max_parts = kAttendPartsPerThread * context.threads};
  for (int i = kVectorClasses - 1; i > 0; --i) {
    limits.max_vectors = kClassVectors[i];
    if (AttendSharedBytes(limits.max_vectors, call.layer.k_dim) <= kMaxSharedBytes) return limits;
  }
  limits.max_vectors = kClassVectors[0];
  CHECK_LE(AttendSharedBytes(limits.max_vectors, call.layer.k_dim), kMaxSharedBytes);
  return limits;
}

// Returns the arguments, without the memory of parts.
AttendArgs ArgsOf(const AttendCall& call, const AttendPlan& plan, const ActivationBuffer& out) {
  const KvLayer& layer = call.layer;
  AttendArgs args = {};
  args.q = call.q.data;
  args.q_stride = call.q.stride;
  args.out = out.values.data;
  args.out_stride = out.values.stride;
  args.gate = call.gate.data;
  args.gate_stride = call.gate.stride;
  args.sinks = call.sinks.empty() ? nullptr : call.sinks.data();
  args.keys = KeysOf(layer);
  args.values = layer.values_in_keys ? KeysOf(layer) : ValuesOf(layer);
  args.values.dim = layer.v_dim;
  args.values_in_keys = layer.values_in_keys;
  args.aligned_values = layer.v_dim % 4 == 0;
  args.heads = call.heads;
  args.group = call.heads / layer.kv_heads;
  args.scale = call.scale;
  args.soft_cap = call.soft_cap;
  args.split_vectors = plan.split_vectors;
  args.round_segments = plan.round_segments;
  return args;
}

// The tasks that one kernel computes.
struct TaskLaunch {
  int64_t round;
  int vector_class;
  int count;
  PackedArray<AttendTask> tasks;
};

std::vector<TaskLaunch> PackTasks(const AttendCall& call, const AttendPlan& plan,
                                  const AttendLimits& limits, ArgumentPack* pack) {
  std::vector<TaskLaunch> launches;
  for (int64_t round = 0; round < plan.rounds; ++round) {
    for (int i = 0; i < kVectorClasses; ++i) {
      const std::vector<AttendTask> tasks = TasksOf(call, plan, limits, round, i);
      if (tasks.empty()) continue;
      launches.push_back({round, i, static_cast<int>(tasks.size()), pack->Add(tasks)});
    }
  }
  return launches;
}

}  // namespace

void AttendRows(const CudaContext& context, const AttendCall& call, const ActivationBuffer& out,
                Arena* arena) {
  const int64_t rows = call.q.rows;
  if (rows == 0) return;
  const AttendLimits limits = LimitsOf(context, call);
  const AttendPlan plan = PlanAttend(call, limits);
  if (plan.covered_rows < rows) ZeroRows(context, out.values);
  const size_t mark = arena->used();
  const size_t bound = AttendScratchBytes(call, context.threads);
  arena->Reserve(bound);
  AttendArgs args = ArgsOf(call, plan, out);
  args.part_stride = (call.layer.v_dim + 3) / 4 * 4;
  const int64_t parts = plan.split_vectors * plan.round_segments;
  args.part_states = arena->Allocate<SoftmaxState>(parts);
  args.part_sums = arena->Allocate<float>(parts * args.part_stride);
  auto* const states = arena->Allocate<SoftmaxState>(plan.split_vectors);
  CHECK_LE(arena->used() - mark, bound);

  const bool merge_quantises = !plan.has_whole && plan.covered_rows == rows &&
                               plan.split_vectors > 0 && call.layer.v_dim % kQuantBlock == 0;
  const Int8Rows int8 = merge_quantises ? Int8RowsOf(out) : Int8Rows{};
  ArgumentPack pack;
  const auto spans = pack.Add(plan.spans);
  const auto tables = pack.Add(plan.tables);
  const auto span_of_row = pack.Add(plan.span_of_row);
  const std::vector<TaskLaunch> launches = PackTasks(call, plan, limits, &pack);
  const std::byte* const packed = pack.Carry(context.staging);
  args.spans = spans.In(packed);
  args.tables = tables.In(packed);
  for (int64_t round = 0; round < plan.rounds; ++round) {
    args.round = round;
    for (const TaskLaunch& launch : launches) {
      if (launch.round != round) continue;
      const int vectors = kClassVectors[launch.vector_class];
      Launch(context.stream, KernelOf(call.layer.dtype, launch.vector_class), {launch.count},
             kAttendThreads, AttendSharedBytes(vectors, call.layer.k_dim), args,
             launch.tasks.In(packed));
    }
    if (plan.split_vectors == 0) continue;
    Launch(context.stream, MergeKernel, {static_cast<int>(rows * call.heads)}, kAttendThreads,
           PartMerge::kSharedBytes, args, span_of_row.In(packed), states, int8);
  }
  arena->ResetTo(mark);
  if (!merge_quantises) QuantizeRows(context, out.values, out);
}

}  // namespace tidepool::kernels::cuda
