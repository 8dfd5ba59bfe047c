#include <cmath>
#include <deque>
#include <memory>

#include "absl/strings/str_cat.h"
#include "kernels/panel.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/operands.h"
#include "tests/kernels/test_data.h"

namespace tidepool::kernels {
namespace {

struct Shape {
  int64_t x_rows, w_rows, cols;
};

// Shapes with rows that fill neither panels nor groups of panels, batches around the edges of
// tiles, and long chains. For types with larger blocks, `cols` is rounded up to whole blocks.
constexpr Shape kBlockShapes[] = {{1, 8, 32},     {2, 13, 64},   {3, 40, 96},  {4, 33, 576},
                                  {5, 7, 32},     {17, 70, 160}, {64, 24, 64}, {70, 65, 256},
                                  {1, 100, 1536}, {66, 9, 64},   {0, 16, 32}};
// Shapes for weights without blocks: the numbers of columns are not multiples of a block.
constexpr Shape kOddShapes[] = {{1, 9, 1}, {3, 20, 5}, {5, 40, 33}, {6, 35, 45}};

struct MatMulInput {
  MatMulInput(DType dtype, const Shape& s, uint64_t seed)
      : shape{s.x_rows, s.w_rows, WholeBlocks(dtype, s.cols)},
        weight(dtype, s.w_rows, shape.cols, seed),
        other(dtype, s.w_rows + 3, shape.cols, seed + 1),
        x(Noise(seed + 2).Floats(s.x_rows * shape.cols)),
        bias(Noise(seed + 3).Floats(s.w_rows)),
        up_bias(Noise(seed + 4).Floats(s.w_rows)),
        residual(Noise(seed + 4).Floats(s.x_rows * (s.w_rows + 3))) {}
  ConstMatrixView View() const { return {x.data(), shape.x_rows, shape.cols}; }

  Shape shape;
  Weight weight;
  Weight other;
  std::vector<float> x;
  std::vector<float> bias;
  std::vector<float> up_bias;
  std::vector<float> residual;
};

// One call has two targets: the product with a bias replaces the first one, and the other product
// is added to a residual.
OpCase MatMulCase(DType dtype, const Shape& shape) {
  const auto input = std::make_shared<MatMulInput>(dtype, shape, shape.cols + 7 * shape.w_rows);
  const auto run = [input](KernelBackend& backend) {
    const Shape& s = input->shape;
    ArenaOperand arena(backend, 1 << 20);
    const MatrixOperand x(backend, input->x, s.x_rows, s.cols);
    const WeightOperand weight(backend, input->weight);
    const WeightOperand other(backend, input->other);
    const Operand<float> bias(backend, input->bias);
    const MatrixOperand first(backend, std::vector<float>(s.x_rows * s.w_rows, NAN), s.x_rows,
                              s.w_rows);
    const MatrixOperand second(backend, input->residual, s.x_rows, s.w_rows + 3);
    const MatMulTarget targets[] = {
        {.weight = weight.matrix(), .out = first.view(), .bias = bias.span()},
        {.weight = other.matrix(), .out = second.view(), .store = Store::kAdd}};
    backend.MatMul(backend.Quantize(x.view(), &arena), targets);
    return OpResult{Joined(first.Read(), second.Read()), {}};
  };
  // The tolerance has the roundings of the chain, and of adding a bias or a residual, which are
  // below 1.
  const auto tolerance = [input](const std::vector<float>& reference) {
    std::vector<double> result = ChainMagnitudes(input->weight, input->View());
    const std::vector<double> second = ChainMagnitudes(input->other, input->View());
    result.insert(result.end(), second.begin(), second.end());
    for (size_t i = 0; i < result.size(); ++i) {
      result[i] = ChainRoundoff(input->shape.cols) * result[i] +
                  2 * kRoundoff * (1 + std::fabs(reference[i]));
    }
    return result;
  };
  return {absl::StrCat("MatMul ", DTypeName(dtype), " ", shape.x_rows, "x", shape.w_rows, "x",
                       shape.cols),
          run, tolerance};
}

OpCase GluCase(DType dtype, const Shape& shape, const Glu& glu, bool biased) {
  const auto input = std::make_shared<MatMulInput>(dtype, shape, 3 * shape.cols + shape.w_rows);
  const auto up = std::make_shared<Weight>(dtype, shape.w_rows, input->shape.cols,
                                           5 * shape.cols + shape.w_rows);
  const auto run = [input, up, glu, biased](KernelBackend& backend) {
    ArenaOperand arena(backend, 1 << 20);
    const MatrixOperand x(backend, input->x, input->shape.x_rows, input->shape.cols);
    const WeightOperand gate_weight(backend, input->weight);
    const WeightOperand up_weight(backend, *up);
    const Operand<float> gate_bias(backend, input->bias);
    const Operand<float> up_bias(backend, input->up_bias);
    FfnWeights ffn = {.gate = gate_weight.matrix(), .up = up_weight.matrix(), .glu = glu};
    if (biased) {
      ffn.gate_bias = gate_bias.span();
      ffn.up_bias = up_bias.span();
    }
    return ResultOf(backend, backend.MatMulGlu(backend.Quantize(x.view(), &arena), ffn, &arena));
  };
  // A gated form is f(g) u, or f(g) (u + 1). f is silu, a gelu or g sigmoid(alpha g): its slope is
  // within [-0.13, 1.13], and its magnitude is at most |g|. Clamping increases no difference. So
  // errors e_g of g and e_u of u change the product by at most 1.13 e_g (|u| + 1) + |g| e_u + 1.13
  // e_g e_u. |g| and |u| are at most the magnitudes of their chains plus a bias below 1. The form
  // itself rounds about 10 times.
  const auto tolerance = [input, up, biased](const std::vector<float>&) {
    std::vector<double> g = ChainMagnitudes(input->weight, input->View());
    const std::vector<double> u = ChainMagnitudes(*up, input->View());
    const double share = ChainRoundoff(input->shape.cols);
    const double bias = biased ? 1 : 0;
    for (size_t i = 0; i < g.size(); ++i) {
      g[i] = ((2.3 * share + share * share) * 1.13 + 10 * kRoundoff) * (g[i] + bias) *
             (u[i] + bias + 1);
    }
    return g;
  };
  return {absl::StrCat("Glu ", static_cast<int>(glu.form), biased ? " biased " : " ",
                       DTypeName(dtype), " ", shape.x_rows, "x", shape.w_rows, "x", shape.cols),
          run, tolerance};
}

OpCase SwiGluCase(DType dtype, const Shape& shape) { return GluCase(dtype, shape, {}, false); }

// `heads` weights of `shape`, and strided outputs.
OpCase MatMulHeadsCase(DType dtype, const Shape& shape, int heads) {
  const auto weights = std::make_shared<std::vector<Weight>>();
  const int64_t cols = WholeBlocks(dtype, shape.cols);
  for (int h = 0; h < heads; ++h) {
    weights->emplace_back(dtype, shape.w_rows, cols, shape.w_rows + 13 * h);
  }
  const auto x = std::make_shared<std::vector<float>>(
      Noise(shape.cols + heads).Floats(shape.x_rows * heads * cols));
  const auto run = [=](KernelBackend& backend) {
    ArenaOperand arena(backend, 1 << 20);
    const int64_t outputs = heads * shape.w_rows;
    const MatrixOperand in(backend, *x, shape.x_rows, heads * cols);
    const MatrixOperand out(backend, std::vector<float>(shape.x_rows * (outputs + 3), 0.5f),
                            shape.x_rows, outputs, outputs + 3);
    std::deque<WeightOperand> operands;
    std::vector<PackedMatrix> matrices;
    for (const Weight& weight : *weights) {
      matrices.push_back(operands.emplace_back(backend, weight).matrix());
    }
    backend.MatMulHeads(backend.Quantize(in.view(), &arena), matrices, out.view());
    return OpResult{out.Read(), {}};
  };
  const auto tolerance = [=](const std::vector<float>& reference) {
    std::vector<double> result(reference.size(), 0);
    for (int h = 0; h < heads; ++h) {
      const std::vector<double> part =
          ChainMagnitudes((*weights)[h], {x->data() + h * cols, shape.x_rows, cols, heads * cols});
      for (int64_t i = 0; i < shape.x_rows; ++i) {
        for (int64_t r = 0; r < shape.w_rows; ++r) {
          result[i * (heads * shape.w_rows + 3) + h * shape.w_rows + r] =
              ChainRoundoff(cols) * part[i * shape.w_rows + r];
        }
      }
    }
    return result;
  };
  return {absl::StrCat("MatMulHeads ", DTypeName(dtype), " ", heads, " heads ", shape.x_rows, "x",
                       shape.w_rows, "x", cols),
          run, tolerance};
}

OpCase EmbedCase(DType dtype) {
  const int64_t cols = WholeBlocks(dtype, 96);
  const auto table = std::make_shared<Weight>(dtype, 37, cols, 11);
  const auto run = [table, cols](KernelBackend& backend) {
    const std::vector<int32_t> ids = {0, 36, 5, 5, 8, 17, 31, 2, 1, 30, 7};
    const WeightOperand weight(backend, *table);
    const MatrixOperand out(backend, std::vector<float>(ids.size() * cols, NAN),
                            static_cast<int64_t>(ids.size()), cols);
    backend.Embed(weight.matrix(), ids, out.view());
    return OpResult{out.Read(), {}};
  };
  return {absl::StrCat("Embed ", DTypeName(dtype)), run, Relative(0)};
}

}  // namespace

void AddMatMulCases(Precision, std::vector<OpCase>* cases) {
  for (const DType dtype : kAllDTypes) {
    for (const Shape& shape : kBlockShapes) cases->push_back(MatMulCase(dtype, shape));
    for (const Shape& shape :
         {Shape{1, 32, 64}, Shape{3, 64, 96}, Shape{66, 33, 32}, Shape{9, 100, 320}}) {
      cases->push_back(SwiGluCase(dtype, shape));
    }
    cases->push_back(EmbedCase(dtype));
    for (int form = 0; form < 4; ++form) {
      const Glu glu = {.form = static_cast<GluForm>(form), .limit = 1.5f};
      cases->push_back(GluCase(dtype, {5, 37, 64}, glu, form % 2 == 1));
      cases->push_back(GluCase(dtype, {26, 64, 96}, glu, form % 2 == 0));
    }
    cases->push_back(MatMulHeadsCase(dtype, {1, 64, 32}, 3));
    cases->push_back(MatMulHeadsCase(dtype, {29, 21, 64}, 2));
    if (BlockElements(dtype) > 1) continue;
    for (const Shape& shape : kOddShapes) {
      cases->push_back(MatMulCase(dtype, shape));
      cases->push_back(SwiGluCase(dtype, shape));
      cases->push_back(MatMulHeadsCase(dtype, shape, 5));
    }
  }
}

}  // namespace tidepool::kernels
