#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/ops.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/state_memory.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

// The state that a span reads: none, another state than the one it writes, or the same one.
enum class Start : uint8_t { kEmpty, kOther, kInPlace };

struct SpanShape {
  int64_t rows;
  Start start = Start::kOther;
  std::vector<int64_t> snapshots = {};
};

// The states of some spans. Each span has its own `in` and `out`, and its snapshots.
class SpanStates {
 public:
  // The number and the size of the units of a state. All states have the same.
  struct Units {
    int64_t count = 0;
    int64_t bytes = 0;
  };

  SpanStates(KernelBackend& backend, const std::vector<SpanShape>& shapes, const Units& units,
             const std::vector<float>& initial)
      : memory_(units.count, units.bytes, CountStates(shapes), &backend),
        snapshots_(shapes.size()) {
    int state = 0;
    int64_t row = kSkippedRows;
    for (size_t i = 0; i < shapes.size(); ++i) {
      const SpanShape& shape = shapes[i];
      StateSpan span = {.first_row = row, .rows = shape.rows};
      memory_.Write(state, initial);
      if (shape.start != Start::kEmpty) span.in = memory_.Table(state);
      if (shape.start != Start::kInPlace) ++state;
      span.out = memory_.Table(state);
      written_.push_back(state++);
      for (const int64_t rows : shape.snapshots) {
        snapshots_[i].push_back({rows, memory_.Table(state)});
        written_.push_back(state++);
      }
      span.snapshots = snapshots_[i];
      spans_.push_back(span);
      row += shape.rows;
    }
  }

  // The first row of the batch belongs to no span.
  static constexpr int64_t kSkippedRows = 1;
  static int64_t Rows(const std::vector<SpanShape>& shapes) {
    int64_t rows = kSkippedRows;
    for (const SpanShape& shape : shapes) rows += shape.rows;
    return rows;
  }

  const StateArray& array() const { return memory_.array(); }
  absl::Span<const StateSpan> spans() const { return spans_; }
  // Appends the states that were written: for each span `out`, then its snapshots.
  void Append(std::vector<float>* values) const {
    for (const int state : written_) {
      const std::vector<float> floats = memory_.Read(state);
      values->insert(values->end(), floats.begin(), floats.end());
    }
  }

 private:
  // Counts one state more than needed, so that there is memory even without spans.
  static int CountStates(const std::vector<SpanShape>& shapes) {
    size_t states = 1;
    for (const SpanShape& shape : shapes) states += 2 + shape.snapshots.size();
    return static_cast<int>(states);
  }

  StateMemory memory_;
  std::vector<std::vector<StateSnapshot>> snapshots_;
  std::vector<StateSpan> spans_;
  std::vector<int> written_;
};

struct ConvShape {
  int64_t channels;
  int kernel;
  ConvActivation activation = ConvActivation::kNone;
  bool bias = false;
  bool gates = false;
};

OpCase ConvCase(const ConvShape& shape, const std::vector<SpanShape>& spans) {
  const auto run = [shape, spans](KernelBackend& backend) {
    const auto& [channels, kernel, activation, has_bias, gates] = shape;
    Noise noise(channels * 10 + kernel);
    const int64_t rows = SpanStates::Rows(spans);
    const MatrixOperand x(backend, noise.Floats(rows * (channels + 2)), rows, channels,
                          channels + 2);
    const Operand<float> weight(backend, noise.Floats(channels * kernel));
    const Operand<float> bias(backend, noise.Floats(has_bias ? channels : 0));
    const Operand<float> gate(backend, noise.Floats(gates ? 2 * rows * channels : 0));
    const int64_t units = ConvUnits(channels);
    std::vector<float> initial = noise.Floats(units * ConvUnitBytes(kernel) / 4);
    // Channels that do not exist are zeros.
    for (size_t i = 0; i < initial.size(); ++i) {
      const auto unit = static_cast<int64_t>(i) / ((kernel - 1) * kStateChannels);
      if (unit * kStateChannels + static_cast<int64_t>(i) % kStateChannels >= channels) {
        initial[i] = 0;
      }
    }
    SpanStates states(backend, spans, {units, ConvUnitBytes(kernel)}, initial);
    CausalConvCall call = {.x = x.view(),
                           .weight = weight.span(),
                           .bias = bias.span(),
                           .kernel = kernel,
                           .activation = activation,
                           .state = states.array(),
                           .spans = states.spans()};
    if (gates) {
      call.in_gate = {gate.data(), rows, channels, 2 * channels};
      call.out_gate = {gate.data() + channels, rows, channels, 2 * channels};
    }
    backend.CausalConv(call);
    OpResult result = {x.Read(), {}};
    states.Append(&result.values);
    return result;
  };
  // A chain of `kernel` terms below 1, and the bias. The slope of silu is below 1.1. silu and the
  // gate add roundings of a value below kernel + 1. The reference rounds once more.
  const double magnitude = shape.kernel + 1;
  const auto tolerance = [magnitude](const std::vector<float>& reference) {
    return std::vector<double>(reference.size(),
                               (1.1 * (magnitude + 1) + 8) * magnitude * kRoundoff);
  };
  return {absl::StrCat("CausalConv ", SpanStates::Rows(spans), "x", shape.channels, " kernel ",
                       shape.kernel, " activation ", static_cast<int>(shape.activation),
                       shape.bias ? " bias" : "", shape.gates ? " gates" : "", ", ", spans.size(),
                       " spans"),
          run, tolerance};
}

struct DeltaShape {
  int k_heads, v_heads, k_dim, v_dim;
  HeadOrder order = HeadOrder::kGrouped;
  bool in_place = false;  // the output replaces v
};

class DeltaFixture {
 public:
  DeltaFixture(const DeltaShape& shape, std::vector<SpanShape> spans)
      : shape_(shape), spans_(std::move(spans)), rows_(SpanStates::Rows(spans_)) {
    Noise noise(shape.k_dim * 100 + shape.v_dim);
    qkv_ = noise.Floats(rows_ * Stride());
    ab_ = noise.Floats(rows_ * 2 * shape.v_heads, 3);
    for (int h = 0; h < shape.v_heads; ++h) decay_.push_back(-8 * std::fabs(noise.Unit()));
    dt_bias_ = noise.Floats(shape.v_heads);
    initial_ = noise.Floats(int64_t{shape.v_heads} * shape.k_dim * shape.v_dim);
  }

  OpResult Run(KernelBackend& backend) const {
    const Operand<float> qkv(backend, qkv_);
    const Operand<float> ab(backend, ab_);
    const Operand<float> decay(backend, decay_);
    const Operand<float> dt_bias(backend, dt_bias_);
    const MatrixOperand out(backend, std::vector<float>(rows_ * OutCols(), 7), rows_, OutCols());
    SpanStates states(backend, spans_, {shape_.v_heads, DeltaUnitBytes(shape_.k_dim, shape_.v_dim)},
                      initial_);
    const int heads = shape_.v_heads;
    const MatrixView v = {qkv.data() + 2 * KeyCols(), rows_, OutCols(), Stride()};
    backend.DeltaNet({.q = {qkv.data(), rows_, KeyCols(), Stride()},
                      .k = {qkv.data() + KeyCols(), rows_, KeyCols(), Stride()},
                      .v = v,
                      .a = {ab.data(), rows_, heads, int64_t{2} * heads},
                      .b = {ab.data() + heads, rows_, heads, int64_t{2} * heads},
                      .decay = decay.span(),
                      .dt_bias = dt_bias.span(),
                      .k_heads = shape_.k_heads,
                      .v_heads = heads,
                      .order = shape_.order,
                      .scale = Scale(),
                      .state = states.array(),
                      .spans = states.spans(),
                      .out = shape_.in_place ? v : out.view()});
    OpResult result = {Joined(Joined(qkv.Read(), ab.Read()), out.Read()), {}};
    states.Append(&result.values);
    return result;
  }

  // Returns the tolerances in the order of Run's values.
  std::vector<double> Tolerance() const {
    std::vector<double> result;
    for (int64_t i = 0; i < rows_ * Stride(); ++i) result.push_back(NormError());
    for (int64_t t = 0; t < rows_; ++t) {
      for (int h = 0; h < shape_.v_heads; ++h) result.push_back(GatesOf(t, h).keep_error);
      for (int h = 0; h < shape_.v_heads; ++h) result.push_back(GatesOf(t, h).beta_error);
    }
    const auto outs = static_cast<int64_t>(result.size());
    result.resize(outs + rows_ * OutCols(), 0.0);
    const auto out_tolerance = [&](int64_t t, int64_t col) -> double& {
      return shape_.in_place ? result[t * Stride() + 2 * KeyCols() + col]
                             : result[outs + t * OutCols() + col];
    };
    int64_t first = SpanStates::kSkippedRows;
    for (const SpanShape& span : spans_) {
      std::vector<std::vector<double>> states(1 + span.snapshots.size());
      for (int col = 0; col < OutCols(); ++col) {
        const std::vector<Bound> bounds = BoundsOf(span, first, col);
        for (int64_t t = 0; t < span.rows; ++t) {
          out_tolerance(first + t, col) = OutError(bounds[t + 1]);
        }
        for (size_t s = 0; s < states.size(); ++s) {
          const int64_t rows = s == 0 ? span.rows : span.snapshots[s - 1];
          // A span without rows writes nothing.
          const double error = span.rows == 0 ? 0 : bounds[rows].StateError();
          states[s].push_back(error);
        }
      }
      for (const std::vector<double>& state : states) AppendState(state, &result);
      first += span.rows;
    }
    return result;
  }

 private:
  // Bounds of the length and of the error of a column of the state.
  struct Bound {
    double length = 0;
    double error = 0;
    double StateError() const { return error + kRoundoff * length; }
  };
  struct Gates {
    double keep, keep_error, beta, beta_error;
  };

  int64_t KeyCols() const { return int64_t{shape_.k_heads} * shape_.k_dim; }
  int64_t OutCols() const { return int64_t{shape_.v_heads} * shape_.v_dim; }
  int64_t Stride() const { return 2 * KeyCols() + OutCols() + 3; }
  float Scale() const { return 1 / std::sqrt(static_cast<float>(shape_.k_dim)); }

  // The relative error of q' and k' (see NormShare in op_cases_rows.cc). Their elements are
  // below 1.
  double NormError() const { return (shape_.k_dim / 16.0 + 10) * kRoundoff; }
  double ChainError() const { return (shape_.k_dim + 1) * kRoundoff; }

  // softplus has 4 ulp, its argument one rounding, and its slope is below 1. exp and sigmoid have 2
  // and 4 ulp. The reference rounds once more.
  Gates GatesOf(int64_t t, int head) const {
    const double a = ab_[t * 2 * shape_.v_heads + head];
    const double b = ab_[t * 2 * shape_.v_heads + shape_.v_heads + head];
    const double x = a + dt_bias_[head];
    const double g = decay_[head] * std::log1p(std::exp(x));
    Gates gates;
    gates.keep = std::exp(g);
    const double exponent_error = 10 * std::fabs(g) + std::fabs(decay_[head] * x);
    gates.keep_error = gates.keep * (exponent_error + 6) * kRoundoff;
    gates.beta = 1 / (1 + std::exp(-b));
    gates.beta_error = gates.beta * 10 * kRoundoff;
    return gates;
  }

  // Returns the bounds of one column after 0, 1, ... rows. |k'| is at most 1, so a sum over |S|
  // |k'| is at most the length of the column. The delta rule itself does not increase an error of
  // the state.
  std::vector<Bound> BoundsOf(const SpanShape& span, int64_t first, int col) const {
    Bound bound;
    if (span.start != Start::kEmpty) bound.length = std::sqrt(shape_.k_dim);
    std::vector<Bound> bounds = {bound};
    const int head = col / shape_.v_dim;
    for (int64_t t = first; t < first + span.rows; ++t) {
      const Gates gates = GatesOf(t, head);
      const double v = std::fabs(qkv_[t * Stride() + 2 * KeyCols() + col]);
      const double kept = gates.keep * bound.length;
      const double delta = gates.beta * (v + kept);
      const double delta_error =
          gates.beta * (gates.keep_error * bound.length + kept * (ChainError() + NormError())) +
          (gates.beta_error / gates.beta + 3 * kRoundoff) * delta;
      bound.error = gates.keep * bound.error + gates.keep_error * bound.length + delta_error +
                    NormError() * delta + 3 * kRoundoff * (kept + delta);
      bound.length = kept + gates.beta * v;
      bounds.push_back(bound);
    }
    return bounds;
  }
  double OutError(const Bound& bound) const {
    return Scale() * (bound.error + bound.length * (ChainError() + NormError() + 2 * kRoundoff));
  }

  // Appends the tolerances of a state in the order of its units. `columns` has those of its
  // columns.
  void AppendState(const std::vector<double>& columns, std::vector<double>* out) const {
    const auto begin = static_cast<int64_t>(out->size());
    const int64_t unit = int64_t{shape_.k_dim} * shape_.v_dim;
    out->resize(begin + shape_.v_heads * unit);
    for (int64_t col = 0; col < OutCols(); ++col) {
      for (int i = 0; i < shape_.k_dim; ++i) {
        const int64_t at =
            DeltaStateIndex(shape_.k_dim, shape_.v_dim, i, static_cast<int>(col % shape_.v_dim));
        (*out)[begin + col / shape_.v_dim * unit + at] = columns[col];
      }
    }
  }

  const DeltaShape shape_;
  const std::vector<SpanShape> spans_;
  const int64_t rows_;
  std::vector<float> qkv_;  // [rows, q k v and 3 more]
  std::vector<float> ab_;   // [rows, a b]
  std::vector<float> decay_;
  std::vector<float> dt_bias_;
  std::vector<float> initial_;
};

OpCase DeltaCase(const DeltaShape& shape, const std::vector<SpanShape>& spans) {
  const auto fixture = std::make_shared<DeltaFixture>(shape, spans);
  return {absl::StrCat("DeltaNet ", shape.k_heads, "/", shape.v_heads, " heads of ", shape.k_dim,
                       "x", shape.v_dim, " order ", static_cast<int>(shape.order),
                       shape.in_place ? " in place" : "", ", ", spans.size(), " spans of ",
                       SpanStates::Rows(spans)),
          [fixture](KernelBackend& backend) { return fixture->Run(backend); },
          [fixture](const std::vector<float>&) { return fixture->Tolerance(); }};
}

}  // namespace

void AddRecurrentCases(Precision, std::vector<OpCase>* cases) {
  const std::vector<SpanShape> decode = {
      {1}, {1, Start::kEmpty}, {1, Start::kInPlace}, {0, Start::kInPlace}};
  const std::vector<SpanShape> prefill = {
      {37, Start::kEmpty, {1, 32, 32, 37}}, {2, Start::kOther, {2}}, {19, Start::kInPlace, {5}}};
  for (const std::vector<SpanShape>& spans : {decode, prefill}) {
    cases->push_back(ConvCase({1, 4}, spans));
    cases->push_back(ConvCase({5, 2, ConvActivation::kSilu}, spans));
    cases->push_back(ConvCase({256, 4, ConvActivation::kSilu}, spans));
    cases->push_back(ConvCase({600, 4, ConvActivation::kSilu, true}, spans));
    cases->push_back(ConvCase({83, 3, ConvActivation::kNone, false, true}, spans));
    cases->push_back(ConvCase({531, 8, ConvActivation::kSilu, true, true}, spans));
    cases->push_back(DeltaCase({1, 1, 1, 1}, spans));
    cases->push_back(DeltaCase({2, 4, 12, 20}, spans));
    cases->push_back(DeltaCase({2, 6, 20, 12, HeadOrder::kTiled}, spans));
    cases->push_back(DeltaCase({3, 6, 16, 33, HeadOrder::kTiled, true}, spans));
    cases->push_back(DeltaCase({1, 2, 64, 64, HeadOrder::kGrouped, true}, spans));
    cases->push_back(DeltaCase({2, 2, 128, 128}, spans));
    cases->push_back(DeltaCase({1, 1, 256, 56}, spans));
  }
  cases->push_back(ConvCase({40, 4}, {}));
  cases->push_back(DeltaCase({1, 2, 8, 8}, {}));
}

}  // namespace tidepool::kernels
