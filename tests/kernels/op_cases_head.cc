#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

struct HeadShape {
  int64_t out_rows, argmax_rows, outputs, cols;
  int terms = 1;
  int64_t argmax_vocab = 0;
  float scale = 1;
  float soft_cap = 0;
  // The bias has infinities and a NaN. Requires: out_rows is 0, because the outputs would be NaN.
  bool unsound = false;

  int64_t rows() const { return out_rows + argmax_rows; }
};

struct HeadInput {
  HeadInput(DType dtype, const HeadShape& s)
      : shape(s),
        weight(dtype, s.outputs, WholeBlocks(dtype, s.cols), s.outputs),
        x(Noise(s.cols).Floats(s.terms * s.rows() * weight.matrix().cols)),
        bias(Noise(s.rows()).Floats(s.outputs)) {
    shape.cols = weight.matrix().cols;
    if (!s.unsound) return;
    bias[s.outputs / 2] = NAN;
    bias[s.outputs / 3] = -INFINITY;
    bias[s.outputs - 1] = INFINITY;
  }

  HeadShape shape;
  Weight weight;
  std::vector<float> x;
  std::vector<float> bias;
};

// The tolerance has the roundings of the chains, of the sums over terms and the bias, and of the
// scale. A soft-cap has a slope of at most 1, and rounds about 10 times. Indices have no tolerance.
std::vector<double> HeadTolerance(const HeadInput& input) {
  const HeadShape& s = input.shape;
  const std::vector<double> chains =
      ChainMagnitudes(input.weight, {input.x.data(), s.terms * s.rows(), s.cols});
  std::vector<double> result;
  for (int64_t i = 0; i < s.rows(); ++i) {
    double largest = 0;
    for (int64_t r = 0; r < s.outputs; ++r) {
      double magnitude = 1;
      for (int64_t term = 0; term < s.terms; ++term) {
        magnitude += chains[(i + term * s.rows()) * s.outputs + r];
      }
      const double error = (ChainRoundoff(s.cols) + 16 * kRoundoff) * magnitude * s.scale;
      if (i < s.out_rows) result.push_back(error);
      largest = std::max(largest, error);
    }
    if (i >= s.out_rows) result.insert(result.end(), {0, largest, 0});
  }
  return result;
}

OpCase HeadCase(DType dtype, const HeadShape& shape) {
  const auto input = std::make_shared<HeadInput>(dtype, shape);
  const auto run = [input](KernelBackend& backend) {
    const HeadShape& s = input->shape;
    const MatrixOperand x(backend, input->x, s.terms * s.rows(), s.cols);
    const WeightOperand weight(backend, input->weight);
    const Operand<float> bias(backend, input->bias);
    const MatrixOperand out(backend, std::vector<float>(s.out_rows * s.outputs, NAN), s.out_rows,
                            s.outputs);
    const Operand<ArgMax> best(backend, std::vector<ArgMax>(s.argmax_rows, ArgMax{77, 77, 77, 77}));
    ArenaOperand arena(backend, 1 << 20);
    backend.MatMulHead(backend.Quantize(x.view(), &arena),
                       {.weight = weight.matrix(),
                        .bias = bias.span(),
                        .terms = s.terms,
                        .out = out.view(),
                        .argmax = {best.data(), static_cast<size_t>(s.argmax_rows)},
                        .argmax_vocab = s.argmax_vocab,
                        .scale = s.scale,
                        .soft_cap = s.soft_cap},
                       &arena);
    OpResult result{out.Read(), {}};
    for (const ArgMax& row : best.Read()) {
      result.values.insert(result.values.end(), {static_cast<float>(row.index), row.value,
                                                 static_cast<float>(row.unsound)});
    }
    return result;
  };
  return {absl::StrCat("MatMulHead ", DTypeName(dtype), " ", shape.out_rows, "+", shape.argmax_rows,
                       "x", shape.outputs, "x", shape.cols, ", ", shape.terms, " terms, vocab ",
                       shape.argmax_vocab, ", scale ", shape.scale, ", cap ", shape.soft_cap,
                       shape.unsound ? ", unsound" : ""),
          run, [input](const std::vector<float>&) { return HeadTolerance(*input); }};
}

}  // namespace

void AddHeadCases(Precision, std::vector<OpCase>* cases) {
  for (const DType dtype : kAllDTypes) {
    cases->push_back(HeadCase(dtype, {0, 1, 205, 64, 1, 205}));
    cases->push_back(HeadCase(dtype, {2, 3, 205, 96, 2, 100, 0.3f, 3}));
    cases->push_back(HeadCase(dtype, {3, 0, 40, 64, 2}));
  }
  for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
    cases->push_back(HeadCase(dtype, {0, 31, 1030, 64, 2, 1030, 1, 0, true}));
    cases->push_back(HeadCase(dtype, {15, 16, 333, 64, 1, 333, 1, 30}));
    cases->push_back(HeadCase(dtype, {1, 1, 9, 64, 1, 1}));
  }
}

}  // namespace tidepool::kernels
