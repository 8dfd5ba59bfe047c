// Row ops that need a sum or a maximum over a row: norms, the int8 form, and scans.
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/rows_device.cu.h"
#include "kernels/math.h"
#include "kernels/panel.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kNormThreads = 256;
constexpr int kNormChunk = 2048;  // floats in shared memory; a multiple of kSumLanes
constexpr int kHeadThreads = 128;
constexpr int kHeadsPerBlock = kHeadThreads / kSumLanes;
// Longer heads get a block of threads each, because 8 threads would wait too long for memory.
constexpr int64_t kMaxShortHead = 256;
constexpr int kQuantThreads = 128;
constexpr int kQuantWarps = kQuantThreads / kWarpLanes;
constexpr int kScanThreads = 256;
constexpr int kScanWarps = kScanThreads / kWarpLanes;

// The norm of each head of some rows.
struct HeadNorms {
  const float* x;
  int64_t x_stride;
  const float* weight;  // [n]
  float eps;
  int n;       // elements of a head
  int heads;   // of a row
  float* out;  // may be x
  int64_t out_stride;
};

// Returns the sum of squares of a head, which all threads of the block compute together.
TIDEPOOL_DEVICE float SquaresOfBlock(const float* x, int n) {
  const auto chunk = SharedArray<float>(0, kNormChunk);
  const auto total = SharedArray<float>(kNormChunk * sizeof(float), 1);
  const int thread = ThreadIndex();
  float squares = 0;
  for (int first = 0; first < n; first += kNormChunk) {
    const int count = n - first < kNormChunk ? n - first : kNormChunk;
    if (first > 0) BlockBarrier();
    for (int i = thread; i < count; i += kNormThreads) chunk[i] = x[first + i];
    BlockBarrier();
    if (thread >= kSumLanes) continue;
    TIDEPOOL_UNROLL_BY(8)
    for (int i = thread; i < count; i += kSumLanes) {
      const float v = chunk[i];
      squares = __builtin_fmaf(v, v, squares);
    }
  }
  if (WarpIndex() == 0) {
    squares = SumOfLanes(squares);
    if (thread == 0) total[0] = squares;
  }
  BlockBarrier();
  return total[0];
}

// A block of threads normalises one head. If there is an int8 form, a row is one head.
TIDEPOOL_KERNEL_OF(kNormThreads, 4) NormKernel(HeadNorms args, Int8Rows int8) {
  const int64_t row = BlockX() / args.heads;
  const int64_t first = int64_t{BlockX() % args.heads} * args.n;
  const float* x = args.x + row * args.x_stride + first;
  float* out = args.out + row * args.out_stride + first;
  const float inverse = InverseRms(SquaresOfBlock(x, args.n), args.n, args.eps);
  for (int i = ThreadIndex(); i < args.n; i += kNormThreads) {
    const float v = x[i] * inverse * args.weight[i];
    out[i] = v;
    // Here n is a multiple of 32, so all lanes of the warp are in the loop.
    if (int8.quants != nullptr) {
      QuantizeBlock(v, row * (args.n / kQuantBlock) + i / kQuantBlock, int8);
    }
  }
}

// 8 threads normalise one head. Each of them computes one lane of the sum. If z is not null,
// results are multiplied by silu(z).
TIDEPOOL_KERNEL_OF(kHeadThreads, 8)
ShortHeadNormKernel(HeadNorms args, const float* z, int64_t z_stride, int64_t count) {
  const int64_t index = int64_t{BlockX()} * kHeadsPerBlock + ThreadIndex() / kSumLanes;
  const int64_t row = index / args.heads;
  const int64_t first = index % args.heads * args.n;
  const int n = index < count ? args.n : 0;
  const float* x = args.x + row * args.x_stride + first;
  float* out = args.out + row * args.out_stride + first;
  const int lane = ThreadIndex() % kSumLanes;
  float squares = 0;
  TIDEPOOL_UNROLL_BY(8)
  for (int i = lane; i < n; i += kSumLanes) squares = __builtin_fmaf(x[i], x[i], squares);
  squares = SumOfLanes(squares);
  const float inverse = InverseRms(squares, args.n, args.eps);
  TIDEPOOL_UNROLL_BY(4)
  for (int i = lane; i < n; i += kSumLanes) {
    const float v = x[i] * inverse * args.weight[i];
    out[i] = z == nullptr ? v : Silu(z[row * z_stride + first + i]) * v;
  }
}

// A warp converts one block of 32 elements.
TIDEPOOL_KERNEL_OF(kQuantThreads, 8)
QuantizeKernel(const float* x, int64_t stride, int blocks_per_row, int64_t blocks, Int8Rows out) {
  const int64_t block = int64_t{BlockX()} * kQuantWarps + WarpIndex();
  if (block >= blocks) return;
  const int64_t row = block / blocks_per_row;
  const int64_t col = block % blocks_per_row * kQuantBlock + LaneIndex();
  QuantizeBlock(x[row * stride + col], block, out);
}

struct TwoTerms {
  const float* x;  // [rows, cols], and its int8 form
  int64_t stride;
  const int8_t* quants;
  const float* scales;
  float* out;  // [2 * rows, cols]
};

TIDEPOOL_KERNEL_OF(kQuantThreads, 8)
QuantizeInTwoKernel(TwoTerms args, int blocks_per_row, int64_t blocks, Int8Rows out) {
  const int64_t block = int64_t{BlockX()} * kQuantWarps + WarpIndex();
  if (block >= blocks) return;
  const int64_t row = block / blocks_per_row;
  const int64_t col = block % blocks_per_row * kQuantBlock + LaneIndex();
  const int64_t at = block * kQuantBlock + LaneIndex();
  const float x = args.x[row * args.stride + col];
  const float left = x - args.scales[block] * static_cast<float>(args.quants[at]);
  args.out[at] = x;
  args.out[blocks * kQuantBlock + at] = left;
  QuantizeBlock(x, block, out);
  QuantizeBlock(left, blocks + block, out);
}

// A block of threads scans one row.
TIDEPOOL_KERNEL_OF(kScanThreads, 4)
ScanKernel(const float* x, int64_t stride, int cols, float limit, RowScan* out) {
  const auto firsts = SharedArray<int>(0, kScanWarps);
  const auto zeros = SharedArray<int>(kScanWarps * sizeof(int), kScanWarps);
  const float* row = x + BlockX() * stride;
  int first = cols;
  bool zero = true;
  for (int i = ThreadIndex(); i < cols; i += kScanThreads) {
    const float v = row[i];
    // Written so that a NaN is large and not zero.
    if (!(__builtin_fabsf(v) < limit) && i < first) first = i;
    if (!(v == 0)) zero = false;
  }
  TIDEPOOL_UNROLL
  for (int mask = kWarpLanes / 2; mask > 0; mask /= 2) {
    const int other = ShuffleXor(first, mask);
    first = other < first ? other : first;
  }
  const bool all_zero = AllLanes(zero);
  if (LaneIndex() == 0) {
    firsts[WarpIndex()] = first;
    zeros[WarpIndex()] = all_zero ? 1 : 0;
  }
  BlockBarrier();
  if (ThreadIndex() != 0) return;
  int zero_warps = 0;
  for (int w = 0; w < kScanWarps; ++w) {
    const int other = firsts[w];
    first = other < first ? other : first;
    zero_warps += zeros[w];
  }
  RowScan& scan = out[BlockX()];
  scan.first_large = first < cols ? first : -1;
  scan.large = first < cols ? row[first] : 0;
  scan.all_zero = zero_warps == kScanWarps;
}

// Normalises the heads of x; `int8` is used only if a row is one head.
void NormAll(const CudaContext& context, const HeadNorms& args, int64_t rows,
             const Int8Rows& int8) {
  const int64_t blocks = rows * args.heads;
  if (blocks == 0) return;
  Launch(context.stream, NormKernel, {static_cast<int>(blocks)}, kNormThreads,
         (kNormChunk + 1) * sizeof(float), args, int8);
}

void NormShortHeads(const CudaContext& context, const HeadNorms& args, int64_t rows,
                    ConstMatrixView z) {
  const int64_t count = rows * args.heads;
  if (count == 0) return;
  Launch(context.stream, ShortHeadNormKernel, {BlocksOf(count, kHeadsPerBlock)}, kHeadThreads, 0,
         args, z.data, z.stride, count);
}

HeadNorms HeadNormsOf(ConstMatrixView x, absl::Span<const float> weight, float eps,
                      MatrixView out) {
  const auto n = static_cast<int>(weight.size());
  return {x.data,   x.stride,  weight.data(), eps, n, static_cast<int>(x.cols / n),
          out.data, out.stride};
}

}  // namespace

void QuantizeRows(const CudaContext& context, ConstMatrixView values, const ActivationBuffer& out) {
  const int64_t blocks_per_row = values.cols / kQuantBlock;
  const int64_t blocks = values.rows * blocks_per_row;
  if (out.quants == nullptr || blocks == 0) return;
  Launch(context.stream, QuantizeKernel, {BlocksOf(blocks, kQuantWarps)}, kQuantThreads, 0,
         values.data, values.stride, static_cast<int>(blocks_per_row), blocks, Int8RowsOf(out));
}

void QuantizeInTwo(const CudaContext& context, const Activation& x, const ActivationBuffer& out) {
  const int64_t blocks_per_row = x.values.cols / kQuantBlock;
  const int64_t blocks = x.values.rows * blocks_per_row;
  if (blocks == 0) return;
  const TwoTerms args = {x.values.data, x.values.stride, x.quants, x.scales, out.values.data};
  Launch(context.stream, QuantizeInTwoKernel, {BlocksOf(blocks, kQuantWarps)}, kQuantThreads, 0,
         args, static_cast<int>(blocks_per_row), blocks, Int8RowsOf(out));
}

void NormRows(const CudaContext& context, ConstMatrixView x, absl::Span<const float> weight,
              float eps, const ActivationBuffer& out) {
  if (x.cols == 0) return;
  NormAll(context, HeadNormsOf(x, weight, eps, out.values), x.rows, Int8RowsOf(out));
}

void HeadNorm(const CudaContext& context, MatrixView x, absl::Span<const float> weight, float eps) {
  const HeadNorms args = HeadNormsOf(x, weight, eps, x);
  if (args.n <= kMaxShortHead) return NormShortHeads(context, args, x.rows, {});
  NormAll(context, args, x.rows, {});
}

void GatedNormRows(const CudaContext& context, const GatedNormCall& call,
                   const ActivationBuffer& out) {
  NormShortHeads(context, HeadNormsOf(call.x, call.weight, call.eps, out.values), call.x.rows,
                 call.z);
  QuantizeRows(context, out.values, out);
}

void ScanRows(const CudaContext& context, ConstMatrixView x, float limit, RowScan* out) {
  if (x.rows == 0) return;
  Launch(context.stream, ScanKernel, {static_cast<int>(x.rows)}, kScanThreads,
         2 * kScanWarps * sizeof(int), x.data, x.stride, static_cast<int>(x.cols), limit, out);
}

}  // namespace tidepool::kernels::cuda
