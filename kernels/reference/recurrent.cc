#include "kernels/reference/recurrent.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <vector>

#include "kernels/ops.h"
#include "kernels/reference/truth.h"

namespace tidepool::kernels {
namespace {

float* FloatsOf(const StateArray& state, absl::Span<const int32_t> blocks, int64_t unit) {
  return reinterpret_cast<float*>(state.Unit(blocks, unit));
}

// Calls write(blocks) for each place that gets the state after `rows` rows of the span.
template <typename Write>
void ForPlaces(const StateSpan& span, int64_t rows, Write write) {
  for (const StateSnapshot& snapshot : span.snapshots) {
    if (snapshot.rows == rows) write(snapshot.blocks);
  }
  if (rows == span.rows) write(span.out);
}

// Computes one channel of a span. The inputs of its state are ordered from the oldest to the
// newest.
void ConvolveChannel(const CausalConvCall& call, const StateSpan& span, int64_t c) {
  const int64_t unit = c / kStateChannels;
  const int64_t lane = c % kStateChannels;
  const int taps = call.kernel - 1;
  std::deque<double> inputs(taps, 0.0);
  for (int j = 0; j < taps && !span.in.empty(); ++j) {
    inputs[j] = FloatsOf(call.state, span.in, unit)[j * kStateChannels + lane];
  }
  for (int64_t i = 0; i < span.rows; ++i) {
    const int64_t row = span.first_row + i;
    float& x = call.x.Row(row)[c];
    // The state stores inputs as float32.
    inputs.push_back(call.in_gate.data == nullptr ? x : x * call.in_gate.Row(row)[c]);
    double y = call.bias.empty() ? 0 : call.bias[c];
    for (int j = 0; j < call.kernel; ++j) y += call.weight[c * call.kernel + j] * inputs[j];
    if (call.activation == ConvActivation::kSilu) y *= SigmoidTruth(y);
    if (call.out_gate.data != nullptr) y *= call.out_gate.Row(row)[c];
    x = static_cast<float>(y);
    inputs.pop_front();
    ForPlaces(span, i + 1, [&](absl::Span<const int32_t> blocks) {
      float* floats = FloatsOf(call.state, blocks, unit);
      for (int j = 0; j < taps; ++j) {
        floats[j * kStateChannels + lane] = static_cast<float>(inputs[j]);
      }
    });
  }
}

// Sets the channels of the last unit that do not exist to zero.
void ClearSpareChannels(const CausalConvCall& call, absl::Span<const int32_t> blocks) {
  const int64_t units = ConvUnits(call.x.cols);
  for (int64_t c = call.x.cols; c < units * kStateChannels; ++c) {
    for (int j = 0; j < call.kernel - 1; ++j) {
      FloatsOf(call.state, blocks, units - 1)[j * kStateChannels + c % kStateChannels] = 0;
    }
  }
}

// Divides a vector by its length, then multiplies it by `scale`.
void NormalizeLength(float* x, int n, float eps, float scale) {
  double squares = 0;
  for (int i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(x[i] / std::sqrt(squares + eps) * scale);
}

// Computes one V head of a span. The state is float64 from the first to the last row.
void AdvanceHead(const DeltaNetCall& call, const StateSpan& span, int head) {
  const int k_dim = call.KeyDim();
  const int v_dim = call.ValueDim();
  std::vector<double> s(int64_t{k_dim} * v_dim, 0.0);  // in the order of the unit
  if (!span.in.empty()) std::copy_n(FloatsOf(call.state, span.in, head), s.size(), s.begin());
  const auto at = [&](int i, int j) -> double& { return s[DeltaStateIndex(k_dim, v_dim, i, j)]; };
  for (int64_t t = 0; t < span.rows; ++t) {
    const int64_t row = span.first_row + t;
    const float* q = call.q.Row(row) + int64_t{call.KeyHead(head)} * k_dim;
    const float* k = call.k.Row(row) + int64_t{call.KeyHead(head)} * k_dim;
    const double keep = call.a.Row(row)[head];
    for (int j = 0; j < v_dim; ++j) {
      double stored = 0;
      for (int i = 0; i < k_dim; ++i) stored += at(i, j) * k[i];
      const int64_t col = int64_t{head} * v_dim + j;
      const double delta = call.b.Row(row)[head] * (call.v.Row(row)[col] - keep * stored);
      double out = 0;
      for (int i = 0; i < k_dim; ++i) {
        at(i, j) = keep * at(i, j) + k[i] * delta;
        out += at(i, j) * q[i];
      }
      call.out.Row(row)[col] = static_cast<float>(out);
    }
    ForPlaces(span, t + 1, [&](absl::Span<const int32_t> blocks) {
      float* floats = FloatsOf(call.state, blocks, head);
      for (size_t i = 0; i < s.size(); ++i) floats[i] = static_cast<float>(s[i]);
    });
  }
}

}  // namespace

void ReferenceCausalConv(const CausalConvCall& call) {
  for (const StateSpan& span : call.spans) {
    for (int64_t c = 0; c < call.x.cols; ++c) ConvolveChannel(call, span, c);
    for (int64_t rows = 1; rows <= span.rows; ++rows) {
      ForPlaces(span, rows,
                [&](absl::Span<const int32_t> blocks) { ClearSpareChannels(call, blocks); });
    }
  }
}

void ReferenceDeltaNet(const DeltaNetCall& call) {
  for (int64_t t = 0; t < call.q.rows; ++t) {
    for (int h = 0; h < call.k_heads; ++h) {
      const int64_t first = int64_t{h} * call.KeyDim();
      NormalizeLength(call.q.Row(t) + first, call.KeyDim(), call.norm_eps, call.scale);
      NormalizeLength(call.k.Row(t) + first, call.KeyDim(), call.norm_eps, 1);
    }
    for (int h = 0; h < call.v_heads; ++h) {
      float& a = call.a.Row(t)[h];
      float& b = call.b.Row(t)[h];
      a = static_cast<float>(
          std::exp(call.decay[h] * SoftplusTruth(static_cast<double>(a) + call.dt_bias[h])));
      b = static_cast<float>(SigmoidTruth(b));
    }
  }
  for (const StateSpan& span : call.spans) {
    for (int head = 0; head < call.v_heads; ++head) AdvanceHead(call, span, head);
  }
}

}  // namespace tidepool::kernels
