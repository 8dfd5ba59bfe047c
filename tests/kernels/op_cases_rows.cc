#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

// The squares are all positive. So the relative error of their sum is at most the number of
// roundings of one lane and of the tree. The root halves it. Then the root, a division and two
// products round.
double NormShare(int64_t cols) { return (static_cast<double>(cols) / 16 + 10) * kRoundoff; }

OpCase NormCase(int64_t rows, int64_t cols) {
  const auto run = [rows, cols](KernelBackend& backend) {
    Noise noise(rows * 1000 + cols);
    const MatrixOperand x(backend, noise.Floats(rows * (cols + 3), 3), rows, cols, cols + 3);
    const Operand<float> weight(backend, noise.Floats(cols));
    ArenaOperand arena(backend, 1 << 20);
    return ResultOf(backend, backend.Norm(x.view(), weight.span(), 1e-5f, &arena));
  };
  return {absl::StrCat("Norm ", rows, "x", cols), run, Relative(NormShare(cols))};
}

OpCase HeadNormCase(int64_t rows, int64_t heads, int64_t head_dim) {
  const auto run = [=](KernelBackend& backend) {
    Noise noise(rows * 1000 + head_dim);
    const MatrixOperand x(backend, noise.Floats(rows * heads * head_dim, 3), rows,
                          heads * head_dim);
    const Operand<float> weight(backend, noise.Floats(head_dim));
    backend.HeadNorm(x.view(), weight.span(), 1e-6f);
    return OpResult{x.Read(), {}};
  };
  return {absl::StrCat("HeadNorm ", rows, "x", heads, "x", head_dim), run,
          Relative(NormShare(head_dim))};
}

// silu has 3 ulp, and its product is rounded.
OpCase GatedNormCase(int64_t rows, int64_t heads, int64_t head_dim) {
  const auto run = [=](KernelBackend& backend) {
    Noise noise(rows * 1000 + head_dim);
    const int64_t cols = heads * head_dim;
    const MatrixOperand x(backend, noise.Floats(rows * cols, 3), rows, cols);
    const MatrixOperand z(backend, noise.Floats(rows * (cols + 5), 6), rows, cols, cols + 5);
    const Operand<float> weight(backend, noise.Floats(head_dim));
    ArenaOperand arena(backend, 1 << 20);
    return ResultOf(backend, backend.GatedNorm(x.view(), z.view(), weight.span(), 1e-6f, &arena));
  };
  return {absl::StrCat("GatedNorm ", rows, "x", heads, "x", head_dim), run,
          Relative(NormShare(head_dim) + 8 * kRoundoff)};
}

// Some blocks have only tiny, huge or zero values. Others have exact ties of rounding, and 127 as
// the largest value.
std::vector<float> ExtremeBlocks(int64_t rows, int64_t cols) {
  std::vector<float> x = Noise(rows + cols).Floats(rows * cols);
  for (int64_t i = 0; i < rows * cols; ++i) {
    switch (i / 32 % 6) {
      case 1:
        x[i] *= 0x1p-125f;
        break;
      case 2:
        x[i] *= 0x1p126f;
        break;
      case 3:
        x[i] = i % 2 == 0 ? 0.0f : -0.0f;
        break;
      case 4:
        x[i] = i % 32 == 0 ? 127 : static_cast<float>(i % 32) - 15.5f;
        break;
    }
  }
  return x;
}

OpCase QuantizeCase(int64_t rows, int64_t cols) {
  const auto run = [rows, cols](KernelBackend& backend) {
    const MatrixOperand x(backend, ExtremeBlocks(rows, cols), rows, cols);
    ArenaOperand arena(backend, 1 << 20);
    return ResultOf(backend, backend.Quantize(x.view(), &arena));
  };
  return {absl::StrCat("Quantize ", rows, "x", cols), run, Relative(0)};
}

// Quantises strided rows to the int8 form.
OpCase QuantizeInTwoCase(int64_t rows, int64_t cols) {
  const auto run = [rows, cols](KernelBackend& backend) {
    const MatrixOperand x(backend, ExtremeBlocks(rows, cols + 4), rows, cols, cols + 4);
    ArenaOperand arena(backend, 1 << 20);
    return ResultOf(backend, backend.QuantizeInTwo(backend.Quantize(x.view(), &arena), &arena));
  };
  return {absl::StrCat("QuantizeInTwo ", rows, "x", cols), run, Relative(0)};
}

std::vector<double> InverseFrequencies(int pairs) {
  std::vector<double> result(pairs);
  for (int i = 0; i < pairs; ++i) result[i] = std::pow(10000.0, -static_cast<double>(i) / pairs);
  return result;
}

OpCase RopeTableCase(int pairs) {
  const auto run = [pairs](KernelBackend& backend) {
    const std::vector<int64_t> positions = {0, 1, 2, 31, 32, 1000, 8191, 131071, 1048575};
    const int64_t rows = static_cast<int64_t>(positions.size());
    const MatrixOperand out(backend, std::vector<float>(2 * rows * pairs, NAN), 2 * rows, pairs);
    backend.RopeTable(positions, InverseFrequencies(pairs), 1.25f, out.view().RowRange(0, rows),
                      out.view().RowRange(rows, rows));
    return OpResult{out.Read(), {}};
  };
  // The two results differ by one rounding to float32: before it, they differ by about 1e-15, so
  // they may be rounded to different floats.
  const auto tolerance = [](const std::vector<float>& reference) {
    return std::vector<double>(reference.size(), 2.5 * kRoundoff);
  };
  return {absl::StrCat("RopeTable ", pairs), run, tolerance};
}

// The elements [first, first + 2 * pairs) of each head.
struct HeadPart {
  int heads, head_dim, pairs;
  int first = 0;
};

OpCase RopeCase(int64_t rows, const HeadPart& part, RopeStyle style) {
  const auto [heads, head_dim, pairs, first] = part;
  const auto run = [=, heads = heads, head_dim = head_dim, pairs = pairs,
                    first = first](KernelBackend& backend) {
    Noise noise(rows + head_dim + pairs);
    const Operand<float> x(backend, noise.Floats(rows * heads * head_dim));
    const MatrixOperand cos(backend, noise.Floats(rows * pairs), rows, pairs);
    const MatrixOperand sin(backend, noise.Floats(rows * pairs), rows, pairs);
    backend.Rope({x.data() + first, rows, int64_t{heads} * head_dim}, head_dim, style, cos.view(),
                 sin.view());
    return OpResult{x.Read(), {}};
  };
  // There are two roundings of values that are at most 2 (all inputs are below 1), and the
  // reference's own rounding.
  const auto tolerance = [](const std::vector<float>& reference) {
    return std::vector<double>(reference.size(), 5 * kRoundoff);
  };
  return {absl::StrCat("Rope ", rows, "x", heads, "x", head_dim, " pairs ", pairs, " style ",
                       static_cast<int>(style), " from ", first),
          run, tolerance};
}

// Calls Scale, and then AddScaled into other rows. Both matrices are strided.
OpCase ScaleCase(int64_t rows, int64_t cols) {
  const auto run = [=](KernelBackend& backend) {
    Noise noise(rows + 3 * cols);
    const MatrixOperand x(backend, noise.Floats(rows * (cols + 1)), rows, cols, cols + 1);
    const MatrixOperand out(backend, noise.Floats(rows * (cols + 2)), rows, cols, cols + 2);
    backend.Scale(x.view(), 0.37f);
    backend.AddScaled(x.view(), -1.7f, out.view());
    return OpResult{Joined(out.Read(), x.Read()), {}};
  };
  // The roundings are those of a product, and of a sum of two values, which are below 1.
  const auto tolerance = [](const std::vector<float>& reference) {
    return std::vector<double>(reference.size(), 4 * kRoundoff);
  };
  return {absl::StrCat("Scale and AddScaled ", rows, "x", cols), run, tolerance};
}

}  // namespace

void AddRowCases(Precision precision, std::vector<OpCase>* cases) {
  for (const int64_t cols : {1, 5, 8, 32, 64, 100, 576, 1536}) {
    for (const int64_t rows : {1, 3, 19}) cases->push_back(NormCase(rows, cols));
  }
  cases->push_back(NormCase(0, 64));
  cases->push_back(HeadNormCase(1, 1, 64));
  cases->push_back(HeadNormCase(11, 3, 40));
  cases->push_back(HeadNormCase(2, 2, 13));
  cases->push_back(GatedNormCase(1, 2, 128));
  cases->push_back(GatedNormCase(11, 3, 40));
  cases->push_back(GatedNormCase(2, 8, 12));
  for (const int64_t cols : {32, 96, 576, 33}) {
    for (const int64_t rows : {1, 7}) cases->push_back(QuantizeCase(rows, cols));
  }
  for (const int64_t cols : {32, 96, 576}) {
    if (precision == Precision::kExact) continue;  // there is no int8 form
    for (const int64_t rows : {0, 1, 19}) cases->push_back(QuantizeInTwoCase(rows, cols));
  }
  for (const int64_t cols : {1, 8, 37, 100}) {
    for (const int64_t rows : {1, 11}) cases->push_back(ScaleCase(rows, cols));
  }
  for (const int pairs : {1, 5, 32, 64}) cases->push_back(RopeTableCase(pairs));
  for (const RopeStyle style : {RopeStyle::kInterleaved, RopeStyle::kHalves}) {
    cases->push_back(RopeCase(1, {9, 64, 32}, style));
    cases->push_back(RopeCase(13, {3, 64, 20}, style));  // a part of the head only
    cases->push_back(RopeCase(13, {3, 64, 20, 24}, style));
    cases->push_back(RopeCase(4, {2, 10, 5}, style));
    cases->push_back(RopeCase(4, {2, 10, 2, 6}, style));
    cases->push_back(RopeCase(2, {1, 2, 1}, style));
  }
}

}  // namespace tidepool::kernels
