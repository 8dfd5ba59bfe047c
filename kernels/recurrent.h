// The arguments of the ops that advance a recurrent state. backend.h declares the ops.
//
// An op reads the state `in` of a span and writes the state `out`, and copies of the state after
// some rows (snapshots). The bits do not depend on how the rows of a sequence are divided into
// spans.
#ifndef TIDEPOOL_KERNELS_RECURRENT_H_
#define TIDEPOOL_KERNELS_RECURRENT_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "kernels/recurrent_state.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {

enum class ConvActivation : uint8_t { kNone, kSilu };

// The input of KernelBackend::CausalConv, a depthwise causal convolution. For each channel c and
// each row t of a span:
//   u[t] = x[t] * in_gate[t]
//   y[t] = activation(bias + the sum over j < kernel of weight[c][j] * u[t - (kernel - 1) + j])
//   x[t] = y[t] * out_gate[t]
// The sum is one chain over ascending j. The state is the last kernel - 1 inputs u. One unit of the
// state has kStateChannels channels: [kernel - 1, oldest first][kStateChannels]. Channels of the
// last unit that do not exist are zeros.
struct CausalConvCall {
  MatrixView x;                    // [rows, channels]; becomes the output
  absl::Span<const float> weight;  // [channels][kernel]
  absl::Span<const float> bias;    // [channels], or empty
  int kernel = 0;                  // from 2 to kMaxConvKernel
  ConvActivation activation = ConvActivation::kNone;
  ConstMatrixView in_gate;   // [rows, channels], or without data
  ConstMatrixView out_gate;  // [rows, channels], or without data
  const StateArray& state;
  absl::Span<const StateSpan> spans;
};
inline constexpr int kMaxConvKernel = 8;
inline constexpr int64_t kStateChannels = 256;

constexpr int64_t ConvUnits(int64_t channels) {
  return (channels + kStateChannels - 1) / kStateChannels;
}
constexpr int64_t ConvUnitBytes(int kernel) {
  return (kernel - 1) * kStateChannels * static_cast<int64_t>(sizeof(float));
}

// Which K head (and Q head) a V head uses, if there are more V heads than K heads.
enum class HeadOrder : uint8_t {
  kGrouped,  // V head j uses K head j / (v_heads / k_heads)
  kTiled,    // V head j uses K head j % k_heads
};

// The input of KernelBackend::DeltaNet, the gated delta rule. S [k_dim, v_dim] is the state of a V
// head. For each V head and each row of a span:
//   q' = q / sqrt(|q|^2 + norm_eps) * scale,  k' = k / sqrt(|k|^2 + norm_eps)
//   keep = exp(decay * softplus(a + dt_bias)),  beta = sigmoid(b)
//   delta = beta * (v - keep * S^T k'),  S = keep * S + k' delta^T,  out = S^T q'
// S^T k' and S^T q' are one chain for each column, over ascending rows of S, from zero.
//
// A unit of the state is the S of one V head. Its columns are in tiles of kDeltaTileCols; the last
// tile may be narrower: [tiles][k_dim][columns of the tile].
struct DeltaNetCall {
  MatrixView q;                     // [rows, k_heads * k_dim]; becomes q'
  MatrixView k;                     // [rows, k_heads * k_dim]; becomes k'
  ConstMatrixView v;                // [rows, v_heads * v_dim]
  MatrixView a;                     // [rows, v_heads]; becomes keep
  MatrixView b;                     // [rows, v_heads]; becomes beta
  absl::Span<const float> decay;    // [v_heads]: -exp(A_log)
  absl::Span<const float> dt_bias;  // [v_heads]
  int k_heads = 0;
  int v_heads = 0;
  HeadOrder order = HeadOrder::kGrouped;
  float norm_eps = 1e-6f;
  float scale = 1;
  const StateArray& state;
  absl::Span<const StateSpan> spans;
  MatrixView out;  // [rows, v_heads * v_dim]; may be v. Rows outside of all spans do not change.

  int KeyDim() const { return static_cast<int>(q.cols / k_heads); }
  int ValueDim() const { return static_cast<int>(v.cols / v_heads); }
  int KeyHead(int v_head) const {
    return order == HeadOrder::kGrouped ? v_head / (v_heads / k_heads) : v_head % k_heads;
  }
};
inline constexpr int kDeltaTileCols = 16;
inline constexpr int kMaxDeltaKeyDim = 256;

constexpr int64_t DeltaUnitBytes(int k_dim, int v_dim) {
  return int64_t{k_dim} * v_dim * static_cast<int64_t>(sizeof(float));
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_RECURRENT_H_
