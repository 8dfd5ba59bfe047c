// KernelBackend::DeltaNet. One warp computes some columns of a V head's state, one column per lane,
// row by row. Meanwhile, the columns are in shared memory.
#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/recurrent_state.cu.h"
#include "kernels/cuda/rows_device.cu.h"
#include "kernels/cuda/rows_elements.cu.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/recurrent.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kHeadThreads = 128;
constexpr int kHeadsPerBlock = kHeadThreads / kSumLanes;

// DeltaNetCall, for kernels. Large because a kernel gets all arguments by value.
struct DeltaArgs {
  float* q;
  int64_t q_stride;
  float* k;
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
  float* a;
  int64_t a_stride;
  float* b;
  int64_t b_stride;
  float* out;
  int64_t out_stride;
  const float* decay;
  const float* dt_bias;
  int k_heads;
  int v_heads;
  int k_dim;
  int v_dim;
  int groups;  // number of groups of columns in a V head
  bool grouped;
  float norm_eps;
  float scale;
  DeviceStates states;
};

// Replaces q and k by q' and k'. 8 threads compute a head of q or k. Each of them computes one lane
// of the sum.
TIDEPOOL_KERNEL_OF(kHeadThreads, 8) NormalizeLengths(DeltaArgs args, int64_t count) {
  const int64_t index = int64_t{BlockX()} * kHeadsPerBlock + ThreadIndex() / kSumLanes;
  const int n = index < count ? args.k_dim : 0;
  const int64_t head = index / 2 % args.k_heads;
  const int64_t row = index / 2 / args.k_heads;
  const bool is_q = index % 2 == 0;
  float* x =
      (is_q ? args.q + row * args.q_stride : args.k + row * args.k_stride) + head * args.k_dim;
  const int lane = ThreadIndex() % kSumLanes;
  float squares = 0;
  TIDEPOOL_UNROLL_BY(8)
  for (int i = lane; i < n; i += kSumLanes) squares = __builtin_fmaf(x[i], x[i], squares);
  squares = SumOfLanes(squares);
  const float factor = (is_q ? args.scale : 1.0f) / SquareRoot(squares + args.norm_eps);
  for (int i = lane; i < n; i += kSumLanes) x[i] = x[i] * factor;
}

// Replaces a and b by `keep` and `beta`.
struct GateElement {
  DeltaArgs args;
  TIDEPOOL_DEVICE void operator()(int64_t row, int64_t head) const {
    float& a = args.a[row * args.a_stride + head];
    float& b = args.b[row * args.b_stride + head];
    a = Exp(args.decay[head] * Softplus(a + args.dt_bias[head]));
    b = Sigmoid(b);
  }
};

// Large because the rows share the state of a column.
class DeltaColumn {
 public:
  TIDEPOOL_DEVICE DeltaColumn(const DeltaArgs& args, const DeviceStateSpan& span, int head,
                              int first)
      : args_(args),
        span_(span),
        head_(head),
        col_(first + LaneIndex()),
        exists_(col_ < args.v_dim),
        tile_(exists_ ? col_ / kDeltaTileCols * kDeltaTileCols : 0),
        state_(SharedArray<float>(0, args.k_dim * kWarpLanes)),
        q_(SharedArray<float>(args.k_dim * kWarpLanes * 4, 2 * args.k_dim)),
        k_(SharedArray<float>(args.k_dim * (kWarpLanes + 2) * 4, 2 * args.k_dim)) {}

  static int SharedBytes(int k_dim) { return k_dim * (kWarpLanes + 4) * 4; }

  TIDEPOOL_DEVICE void Run() {
    LoadState();
    float queries[kPerLane];
    float keys[kPerLane];
    LoadRow(0, queries, keys);
    StoreRow(0, queries, keys);
    LoadRow(1, queries, keys);
    WarpBarrier();
    float stored = 0;  // S^T k
    for (int i = 0; i < args_.k_dim; ++i) {
      stored = __builtin_fmaf(k_[i], state_[i * kWarpLanes + LaneIndex()], stored);
    }
    SnapshotWalk snapshots(args_.states, span_);
    float v = ValueOf(0);
    for (int64_t t = 0; t < span_.rows; ++t) {
      // The next row is in shared memory, and the row after it in registers.
      if (t + 1 < span_.rows) StoreRow(t + 1, queries, keys);
      WarpBarrier();
      LoadRow(t + 2, queries, keys);
      const float next_v = ValueOf(t + 1);
      const int64_t row = span_.first_row + t;
      const float keep = args_.a[row * args_.a_stride + head_];
      const float beta = args_.b[row * args_.b_stride + head_];
      const float delta = beta * __builtin_fmaf(-keep, stored, v);
      stored = Update(t, keep, delta, t + 1 < span_.rows);
      v = next_v;
      snapshots.Reach(t + 1, [&](int64_t state) { StoreState(state); });
      WarpBarrier();
    }
    StoreState(span_.out);
  }

 private:
  static constexpr int kPerLane = kMaxDeltaKeyDim / kWarpLanes;
  static constexpr int kChunk = 4;  // rows of the state that are computed at once

  // The position of the column's element in row i of the state (DeltaStateIndex in ops.h).
  TIDEPOOL_DEVICE int StateIndex(int i) const {
    const int left = args_.v_dim - tile_;
    const int width = left < kDeltaTileCols ? left : kDeltaTileCols;
    return tile_ * args_.k_dim + i * width + (col_ - tile_);
  }
  TIDEPOOL_DEVICE void LoadState() const {
    const bool loads = exists_ && span_.in >= 0;
    const float* from = loads ? args_.states.units[span_.in + head_] : nullptr;
    TIDEPOOL_UNROLL_BY(8)
    for (int i = 0; i < args_.k_dim; ++i) {
      state_[i * kWarpLanes + LaneIndex()] = loads ? from[StateIndex(i)] : 0.0f;
    }
  }
  TIDEPOOL_DEVICE void StoreState(int64_t state) const {
    if (!exists_) return;
    float* to = args_.states.units[state + head_];
    TIDEPOOL_UNROLL_BY(8)
    for (int i = 0; i < args_.k_dim; ++i) {
      to[StateIndex(i)] = state_[i * kWarpLanes + LaneIndex()];
    }
  }

  TIDEPOOL_DEVICE int KeyHead() const {
    return args_.grouped ? head_ / (args_.v_heads / args_.k_heads) : head_ % args_.k_heads;
  }
  // Loads this lane's part of q' and k' of row t, if the span has it.
  TIDEPOOL_DEVICE void LoadRow(int64_t t, float (&queries)[kPerLane],
                               float (&keys)[kPerLane]) const {
    if (t >= span_.rows) return;
    const int64_t row = span_.first_row + t;
    const int64_t first = int64_t{KeyHead()} * args_.k_dim;
    TIDEPOOL_UNROLL
    for (int i = 0; i < kPerLane; ++i) {
      const int at = i * kWarpLanes + LaneIndex();
      if (at >= args_.k_dim) continue;
      queries[i] = args_.q[row * args_.q_stride + first + at];
      keys[i] = args_.k[row * args_.k_stride + first + at];
    }
  }
  // Row t is in half t % 2 of q_ and k_.
  TIDEPOOL_DEVICE int HalfOf(int64_t t) const { return static_cast<int>(t % 2) * args_.k_dim; }
  TIDEPOOL_DEVICE void StoreRow(int64_t t, const float (&queries)[kPerLane],
                                const float (&keys)[kPerLane]) const {
    TIDEPOOL_UNROLL
    for (int i = 0; i < kPerLane; ++i) {
      const int at = i * kWarpLanes + LaneIndex();
      if (at >= args_.k_dim) continue;
      q_[HalfOf(t) + at] = queries[i];
      k_[HalfOf(t) + at] = keys[i];
    }
  }
  TIDEPOOL_DEVICE float ValueOf(int64_t t) const {
    if (!exists_ || t >= span_.rows) return 0;
    return args_.v[(span_.first_row + t) * args_.v_stride + int64_t{head_} * args_.v_dim + col_];
  }

  // Adds the update of row t to the state, and writes the row's output. Returns S^T k of the next
  // row.
  TIDEPOOL_DEVICE float Update(int64_t t, float keep, float delta, bool has_next) const {
    const int now = HalfOf(t);
    const int next = has_next ? HalfOf(t + 1) : now;
    float out = 0;
    float stored = 0;
    int first = 0;
    for (; first + kChunk <= args_.k_dim; first += kChunk) {
      float s[kChunk];
      TIDEPOOL_UNROLL
      for (int i = 0; i < kChunk; ++i) s[i] = state_[(first + i) * kWarpLanes + LaneIndex()];
      TIDEPOOL_UNROLL
      for (int i = 0; i < kChunk; ++i) {
        s[i] = __builtin_fmaf(k_[now + first + i], delta, s[i] * keep);
        out = __builtin_fmaf(q_[now + first + i], s[i], out);
        stored = __builtin_fmaf(k_[next + first + i], s[i], stored);
      }
      TIDEPOOL_UNROLL
      for (int i = 0; i < kChunk; ++i) state_[(first + i) * kWarpLanes + LaneIndex()] = s[i];
    }
    for (; first < args_.k_dim; ++first) {
      float s = state_[first * kWarpLanes + LaneIndex()];
      s = __builtin_fmaf(k_[now + first], delta, s * keep);
      out = __builtin_fmaf(q_[now + first], s, out);
      stored = __builtin_fmaf(k_[next + first], s, stored);
      state_[first * kWarpLanes + LaneIndex()] = s;
    }
    if (exists_) {
      args_.out[(span_.first_row + t) * args_.out_stride + int64_t{head_} * args_.v_dim + col_] =
          out;
    }
    return stored;
  }

  const DeltaArgs& args_;
  const DeviceStateSpan& span_;
  const int head_;
  const int col_;
  const bool exists_;
  const int tile_;             // the first column of the tile
  const Shared<float> state_;  // [k_dim][kWarpLanes]
  const Shared<float> q_;      // [2][k_dim]
  const Shared<float> k_;
};

TIDEPOOL_KERNEL_OF(kWarpLanes, 4) DeltaKernel(DeltaArgs args) {
  const int group = BlockX() % args.groups;
  const int head = BlockX() / args.groups % args.v_heads;
  const DeviceStateSpan span = args.states.spans[BlockX() / args.groups / args.v_heads];
  DeltaColumn(args, span, head, group * kWarpLanes).Run();
}

DeltaArgs ArgsOf(const DeltaNetCall& call) {
  DeltaArgs args = {.q = call.q.data, .q_stride = call.q.stride};
  args.k = call.k.data;
  args.k_stride = call.k.stride;
  args.v = call.v.data;
  args.v_stride = call.v.stride;
  args.a = call.a.data;
  args.a_stride = call.a.stride;
  args.b = call.b.data;
  args.b_stride = call.b.stride;
  args.out = call.out.data;
  args.out_stride = call.out.stride;
  args.decay = call.decay.data();
  args.dt_bias = call.dt_bias.data();
  args.k_heads = call.k_heads;
  args.v_heads = call.v_heads;
  args.k_dim = call.KeyDim();
  args.v_dim = call.ValueDim();
  args.groups = BlocksOf(args.v_dim, kWarpLanes);
  args.grouped = call.order == HeadOrder::kGrouped;
  args.norm_eps = call.norm_eps;
  args.scale = call.scale;
  return args;
}

}  // namespace

void AdvanceDeltaNet(const CudaContext& context, const DeltaNetCall& call) {
  const int64_t rows = call.q.rows;
  if (rows == 0) return;
  DeltaArgs args = ArgsOf(call);
  const int64_t heads = rows * args.k_heads * 2;
  Launch(context.stream, NormalizeLengths, {BlocksOf(heads, kHeadsPerBlock)}, kHeadThreads, 0, args,
         heads);
  ForElements(context, rows, args.v_heads, GateElement{args});
  args.states = CarryStates(context, call.state, call.spans);
  const int64_t blocks = args.states.count * args.v_heads * args.groups;
  if (blocks == 0) return;
  Launch(context.stream, DeltaKernel, {static_cast<int>(blocks)}, kWarpLanes,
         DeltaColumn::SharedBytes(args.k_dim), args);
}

}  // namespace tidepool::kernels::cuda
