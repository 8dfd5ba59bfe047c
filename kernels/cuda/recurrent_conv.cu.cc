// KernelBackend::CausalConv. One thread computes a channel of a span.
#include <cstdint>

#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/recurrent_state.cu.h"
#include "kernels/math.h"
#include "kernels/recurrent.h"

namespace tidepool::kernels::cuda {
namespace {

constexpr int kThreads = 64;
constexpr int kUnitBlocks = kStateChannels / kThreads;
// Number of rows whose inputs are loaded together. A thread computes the rows one after another,
// and would otherwise wait for each load.
constexpr int kBatch = 8;

struct ConvArgs {
  float* x;
  int64_t x_stride;
  const float* in_gate;  // null: no gate
  int64_t in_gate_stride;
  const float* out_gate;  // null: no gate
  int64_t out_gate_stride;
  const float* weight;  // [channels][kernel]
  const float* bias;    // null: none
  bool silu;
  int64_t channels;
  int64_t units;
  DeviceStates states;
};

// Large because the rows share the weights and the inputs.
template <int kKernel>
class ConvChannel {
 public:
  TIDEPOOL_DEVICE ConvChannel(const ConvArgs& args, int64_t unit, int index)
      : args_(args),
        unit_(unit),
        index_(index),
        channel_(unit * kStateChannels + index),
        exists_(channel_ < args.channels) {
    TIDEPOOL_UNROLL
    for (int j = 0; j < kKernel; ++j) {
      weight_[j] = exists_ ? args.weight[channel_ * kKernel + j] : 0.0f;
    }
    bias_ = exists_ && args.bias != nullptr ? args.bias[channel_] : 0.0f;
  }

  TIDEPOOL_DEVICE void Run(const DeviceStateSpan& span) {
    TIDEPOOL_UNROLL
    for (int j = 0; j < kTaps; ++j) {
      const bool loads = exists_ && span.in >= 0;
      inputs_[j] = loads ? Unit(span.in)[j * kStateChannels] : 0.0f;
    }
    SnapshotWalk snapshots(args_.states, span);
    for (int64_t first = 0; first < span.rows; first += kBatch) {
      float x[kBatch];
      float gate[kBatch];
      TIDEPOOL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        if (first + i < span.rows) Load(span.first_row + first + i, &x[i], &gate[i]);
      }
      TIDEPOOL_UNROLL
      for (int i = 0; i < kBatch; ++i) {
        if (first + i >= span.rows) break;
        Advance(span.first_row + first + i, x[i], gate[i]);
        snapshots.Reach(first + i + 1, [&](int64_t state) { Store(state); });
      }
    }
    Store(span.out);
  }

 private:
  static constexpr int kTaps = kKernel - 1;

  TIDEPOOL_DEVICE float* Unit(int64_t state) const {
    return args_.states.units[state + unit_] + index_;
  }
  TIDEPOOL_DEVICE void Store(int64_t state) const {
    TIDEPOOL_UNROLL
    for (int j = 0; j < kTaps; ++j) Unit(state)[j * kStateChannels] = inputs_[j];
  }

  TIDEPOOL_DEVICE void Load(int64_t row, float* x, float* gate) const {
    *x = exists_ ? args_.x[row * args_.x_stride + channel_] : 0.0f;
    if (exists_ && args_.in_gate != nullptr) {
      *x = *x * args_.in_gate[row * args_.in_gate_stride + channel_];
    }
    const bool gated = exists_ && args_.out_gate != nullptr;
    *gate = gated ? args_.out_gate[row * args_.out_gate_stride + channel_] : 0.0f;
  }

  TIDEPOOL_DEVICE void Advance(int64_t row, float input, float gate) {
    float sum = 0;
    TIDEPOOL_UNROLL
    for (int j = 0; j < kTaps; ++j) sum = __builtin_fmaf(weight_[j], inputs_[j], sum);
    sum = __builtin_fmaf(weight_[kTaps], input, sum);
    TIDEPOOL_UNROLL
    for (int j = 0; j + 1 < kTaps; ++j) inputs_[j] = inputs_[j + 1];
    inputs_[kTaps - 1] = input;
    float y = sum + bias_;
    if (args_.silu) y = Silu(y);
    if (args_.out_gate != nullptr) y = y * gate;
    if (exists_) args_.x[row * args_.x_stride + channel_] = y;
  }

  const ConvArgs& args_;
  const int64_t unit_;
  const int index_;  // number of the channel in its unit
  const int64_t channel_;
  const bool exists_;
  float weight_[kKernel];
  float bias_;
  float inputs_[kTaps];  // oldest first
};

template <int kKernel>
TIDEPOOL_KERNEL_OF(kThreads, 8)
ConvKernel(ConvArgs args) {
  const int64_t unit = BlockX() / kUnitBlocks % args.units;
  const int64_t span = BlockX() / kUnitBlocks / args.units;
  const int index = BlockX() % kUnitBlocks * kThreads + ThreadIndex();
  ConvChannel<kKernel>(args, unit, index).Run(args.states.spans[span]);
}

using ConvKernelFunction = void (*)(ConvArgs);
ConvKernelFunction KernelOf(int kernel) {
  static_assert(kMaxConvKernel == 8);
  switch (kernel) {
    case 2:
      return ConvKernel<2>;
    case 3:
      return ConvKernel<3>;
    case 4:
      return ConvKernel<4>;
    case 5:
      return ConvKernel<5>;
    case 6:
      return ConvKernel<6>;
    case 7:
      return ConvKernel<7>;
    default:
      return ConvKernel<8>;
  }
}

}  // namespace

void ConvolveRows(const CudaContext& context, const CausalConvCall& call) {
  ConvArgs args = {.x = call.x.data, .x_stride = call.x.stride};
  args.in_gate = call.in_gate.data;
  args.in_gate_stride = call.in_gate.stride;
  args.out_gate = call.out_gate.data;
  args.out_gate_stride = call.out_gate.stride;
  args.weight = call.weight.data();
  args.bias = call.bias.empty() ? nullptr : call.bias.data();
  args.silu = call.activation == ConvActivation::kSilu;
  args.channels = call.x.cols;
  args.units = ConvUnits(call.x.cols);
  args.states = CarryStates(context, call.state, call.spans);
  const int64_t blocks = args.states.count * args.units * kUnitBlocks;
  if (blocks == 0) return;
  Launch(context.stream, KernelOf(call.kernel), {static_cast<int>(blocks)}, kThreads, 0, args);
}

}  // namespace tidepool::kernels::cuda
