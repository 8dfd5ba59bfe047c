// MatMulHead: a product, and then for each row the complete outputs or their argmax.
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/product.h"
#include "kernels/cuda/tensor_core.h"
#include "kernels/math.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kThreads = 256;
// Number of rows that are computed at a time. It is limited, because their outputs need scratch
// memory.
constexpr int64_t kHeadRows = 64;

// Some rows of a HeadTarget. products: [terms * rows][outputs].
struct HeadRows {
  const float* products = nullptr;
  int64_t rows = 0;
  int64_t outputs = 0;
  int terms = 1;
  const float* bias = nullptr;
  float scale = 1;
  float soft_cap = 0;
  MatrixView out;            // outputs of the rows that are needed completely
  ArgMax* argmax = nullptr;  // [parts][argmax rows]
  int64_t argmax_vocab = 0;
};

TIDEPOOL_DEVICE float OutputOf(const HeadRows& head, int64_t row, int64_t output) {
  float sum = head.products[row * head.outputs + output];
  for (int term = 1; term < head.terms; ++term) {
    sum = sum + head.products[(term * head.rows + row) * head.outputs + output];
  }
  if (head.bias != nullptr) sum = sum + head.bias[output];
  if (head.scale != 1) sum = sum * head.scale;
  if (head.soft_cap != 0) sum = SoftCap(sum, 1 / head.soft_cap, head.soft_cap);
  return sum;
}

// Merges the argmax of all threads of the block. Thread 0 gets the result.
TIDEPOOL_DEVICE ArgMax MergeThreads(ArgMax best) {
  const auto all = SharedArray<ArgMax>(0, BlockThreads());
  all[ThreadIndex()] = best;
  for (int step = BlockThreads() / 2; step > 0; step /= 2) {
    BlockBarrier();
    if (ThreadIndex() >= step) continue;
    const ArgMax other = all[ThreadIndex() + step];
    MergeArgMax(other, &best);
    all[ThreadIndex()] = best;
  }
  return best;
}

// A block computes a part of the outputs of a row.
TIDEPOOL_KERNEL HeadKernel(HeadRows head) {
  const int64_t row = BlockY();
  const int64_t part = (head.outputs + GridX() - 1) / GridX();
  const int64_t begin = BlockX() * part;
  int64_t end = begin + part < head.outputs ? begin + part : head.outputs;
  if (row < head.out.rows) {
    for (int64_t i = begin + ThreadIndex(); i < end; i += kThreads) {
      head.out.data[row * head.out.stride + i] = OutputOf(head, row, i);
    }
    return;
  }
  end = end < head.argmax_vocab ? end : head.argmax_vocab;
  ArgMax best;
  for (int64_t i = begin + ThreadIndex(); i < end; i += kThreads) {
    AddToArgMax(static_cast<int32_t>(i), OutputOf(head, row, i), &best);
  }
  best = MergeThreads(best);
  if (ThreadIndex() != 0) return;
  head.argmax[BlockX() * (head.rows - head.out.rows) + row - head.out.rows] = best;
}

// A block merges the parts of a row.
TIDEPOOL_KERNEL MergeKernel(const ArgMax* parts, int64_t rows, ArgMax* best) {
  ArgMax merged = parts[ThreadIndex() * rows + BlockX()];
  merged = MergeThreads(merged);
  if (ThreadIndex() == 0) best[BlockX()] = merged;
}

static_assert(kCudaThreads % kWarpLanes == 0, "MergeKernel has one thread per part");

// Computes the products of rows first, first + 1 ... of a target. `out` is the part of the result
// for the first term. The parts for the other terms follow it.
void ComputeProducts(const CudaContext& context, const Activation& x, const HeadTarget& target,
                     int64_t first, MatrixView out) {
  PackedMatrix weight = target.weight;
  weight.rows = out.cols;
  ProductList list(InputOf(x), x.values.cols);
  for (int term = 0; term < target.terms; ++term, out.data += out.rows * out.stride) {
    const int64_t x_row = term * target.rows() + first;
    if (UsesTensorCores(context, weight, out.rows)) {
      TensorCoreTarget(context, x, x_row, {.weight = weight, .out = out});
      continue;
    }
    list.Add(weight.dtype, {.panels = weight.data,
                            .out = out.data,
                            .out_stride = out.stride,
                            .outputs = static_cast<int32_t>(out.cols),
                            .first = static_cast<int32_t>(x_row),
                            .rows = static_cast<int32_t>(out.rows)});
  }
  list.Start(context);
}

}  // namespace

void MultiplyHead(const CudaContext& context, const Activation& x, const HeadTarget& target,
                  Arena* arena) {
  const size_t mark = arena->used();
  ArgMax* const parts = AllocateHeadScratch(target, context.threads, arena);
  const int64_t rows = target.rows();
  // Outputs that are not needed are not computed.
  const int64_t outputs =
      target.out.rows > 0 ? target.weight.rows : std::max<int64_t>(1, target.argmax_vocab);
  float* const products =
      context.scratch->Reserve<float>(std::min(rows, kHeadRows) * target.terms * outputs);
  for (int64_t first = 0; first < rows; first += kHeadRows) {
    const int64_t count = std::min(kHeadRows, rows - first);
    ComputeProducts(context, x, target, first, MatrixView(products, count, outputs));
    const int64_t complete = std::clamp<int64_t>(target.out.rows - first, 0, count);
    HeadRows head = {.products = products,
                     .rows = count,
                     .outputs = outputs,
                     .terms = target.terms,
                     .bias = target.bias.empty() ? nullptr : target.bias.data(),
                     .scale = target.scale,
                     .soft_cap = target.soft_cap,
                     .argmax = parts,
                     .argmax_vocab = target.argmax_vocab};
    head.out = MatrixView(complete > 0 ? target.out.Row(first) : nullptr, complete, target.out.cols,
                          target.out.stride);
    Launch(context.stream, HeadKernel, {kCudaThreads, static_cast<int>(count)}, kThreads,
           kThreads * static_cast<int>(sizeof(ArgMax)), head);
    if (complete == count) continue;
    Launch(context.stream, MergeKernel, {static_cast<int>(count - complete)}, kCudaThreads,
           kCudaThreads * static_cast<int>(sizeof(ArgMax)), parts, count - complete,
           target.argmax.data() + (first + complete - target.out.rows));
  }
  arena->ResetTo(mark);
}

}  // namespace tidepool::kernels::cuda
