#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/host_backend.h"
#include "kernels/ops.h"
#include "kernels/panel.h"
#include "kernels/reference/attention.h"
#include "kernels/reference/gate.h"
#include "kernels/reference/int8_form.h"
#include "kernels/reference/recurrent.h"
#include "kernels/reference/truth.h"

namespace tidepool::kernels {
namespace {

// Returns element i of a bias. If the bias is empty, returns 0.
float At(absl::Span<const float> bias, int64_t i) { return bias.empty() ? 0 : bias[i]; }

void NormalizeInto(const float* x, absl::Span<const float> weight, float eps, float* out) {
  const int64_t n = static_cast<int64_t>(weight.size());
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double scale = 1 / std::sqrt(squares / n + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * scale * weight[i]);
}

// Returns row `row` of x in the form that the product uses: the int8 form if x has one and the
// weight is quantised, otherwise the floats.
std::vector<double> RowFor(const Activation& x, int64_t row, DType weight, Precision precision) {
  std::vector<double> values(x.values.cols);
  const bool int8 = precision == Precision::kFast && IsQuantised(weight);
  for (int64_t k = 0; k < x.values.cols; ++k) {
    const int64_t at = row * x.values.cols + k;
    values[k] = int8 ? static_cast<double>(x.scales[at / kQuantBlock]) * x.quants[at]
                     : x.values.Row(row)[k];
  }
  return values;
}

// Returns the product of row `r` of a weight with a row of x.
double Dot(const PackedMatrix& weight, int64_t r, const std::vector<double>& x) {
  std::vector<float> w(weight.cols);
  UnpackRow(weight, r, absl::MakeSpan(w));
  double sum = 0;
  for (int64_t k = 0; k < weight.cols; ++k) sum += w[k] * x[k];
  return sum;
}

// Large because each op is a method.
class ReferenceBackend final : public HostBackend {
 public:
  explicit ReferenceBackend(Precision precision) : precision_(precision) {}

  std::string Description() const override { return "reference, 1 thread"; }
  Precision precision() const override { return precision_; }

  void Embed(const PackedMatrix& table, absl::Span<const int32_t> ids, MatrixView out) override {
    CHECK_EQ(static_cast<int64_t>(ids.size()), out.rows);
    CHECK_EQ(table.cols, out.cols);
    for (int64_t i = 0; i < out.rows; ++i) {
      UnpackRow(table, ids[i], absl::MakeSpan(out.Row(i), out.cols));
    }
  }

  Activation Quantize(ConstMatrixView x, Arena* arena) override {
    const ActivationBuffer buffer =
        AllocateActivation(x.rows, x.cols, precision_, ActivationParts::kInt8Only, arena);
    QuantizeRows(x, buffer);
    Activation result = buffer.View();
    result.values = x;
    return result;
  }

  Activation QuantizeInTwo(const Activation& x, Arena* arena) override {
    CheckQuantizeInTwo(x);
    const auto [rows, cols] = std::pair(x.values.rows, x.values.cols);
    const ActivationBuffer result =
        AllocateActivation(2 * rows, cols, precision_, ActivationParts::kAll, arena);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < cols; ++k) {
        const int64_t at = i * cols + k;
        const float rounded = x.scales[at / kQuantBlock] * static_cast<float>(x.quants[at]);
        result.values.Row(i)[k] = x.values.Row(i)[k];
        result.values.Row(rows + i)[k] = x.values.Row(i)[k] - rounded;
      }
    }
    QuantizeRows(result.values, result);
    return result.View();
  }

  void ScanRows(ConstMatrixView x, float limit, RowScan* out) override {
    CheckScanRows(x, limit);
    for (int64_t i = 0; i < x.rows; ++i) {
      out[i] = RowScan();
      for (int64_t k = 0; k < x.cols; ++k) {
        const float value = x.Row(i)[k];
        if (value != 0) out[i].all_zero = false;
        const bool large = std::isnan(value) || std::fabs(value) >= limit;
        if (!large || out[i].first_large >= 0) continue;
        out[i].first_large = static_cast<int32_t>(k);
        out[i].large = value;
      }
    }
  }

  Activation Norm(ConstMatrixView x, absl::Span<const float> weight, float eps,
                  Arena* arena) override {
    CHECK_EQ(static_cast<int64_t>(weight.size()), x.cols);
    const ActivationBuffer result =
        AllocateActivation(x.rows, x.cols, precision_, ActivationParts::kAll, arena);
    for (int64_t i = 0; i < x.rows; ++i) NormalizeInto(x.Row(i), weight, eps, result.values.Row(i));
    QuantizeRows(result.values, result);
    return result.View();
  }

  void HeadNorm(MatrixView x, absl::Span<const float> weight, float eps) override {
    const int64_t head_dim = static_cast<int64_t>(weight.size());
    CHECK(head_dim > 0 && x.cols % head_dim == 0);
    for (int64_t i = 0; i < x.rows; ++i) {
      for (int64_t at = 0; at < x.cols; at += head_dim) {
        NormalizeInto(x.Row(i) + at, weight, eps, x.Row(i) + at);
      }
    }
  }

  void MatMul(const Activation& x, absl::Span<const MatMulTarget> targets) override {
    for (const MatMulTarget& target : targets) {
      CheckTarget(x, target, precision_);
      for (int64_t i = 0; i < x.values.rows; ++i) {
        const auto row = RowFor(x, i, target.weight.dtype, precision_);
        for (int64_t r = 0; r < target.weight.rows; ++r) {
          double value = Dot(target.weight, r, row);
          if (!target.bias.empty()) value += target.bias[r];
          float& out = target.out.Row(i)[r];
          out = static_cast<float>(target.store == Store::kAdd ? out + value : value);
        }
      }
    }
  }

  void MatMulHead(const Activation& x, const HeadTarget& target, Arena*) override {
    CheckHead(x, target, precision_);
    for (int64_t i = 0; i < target.rows(); ++i) {
      std::vector<double> sums(target.weight.rows, 0.0);
      for (int term = 0; term < target.terms; ++term) {
        const std::vector<double> row =
            RowFor(x, i + term * target.rows(), target.weight.dtype, precision_);
        for (int64_t r = 0; r < target.weight.rows; ++r) sums[r] += Dot(target.weight, r, row);
      }
      ArgMax best;
      for (int64_t r = 0; r < target.weight.rows; ++r) {
        const double biased = sums[r] + (target.bias.empty() ? 0 : target.bias[r]);
        const float value =
            static_cast<float>(SoftCapTruth(biased * target.scale, target.soft_cap));
        if (i < target.out.rows) target.out.Row(i)[r] = value;
        if (r < target.argmax_vocab) AddToArgMax(static_cast<int32_t>(r), value, &best);
      }
      if (i >= target.out.rows) target.argmax[i - target.out.rows] = best;
    }
  }

  void MatMulHeads(const Activation& x, absl::Span<const PackedMatrix> weights,
                   MatrixView out) override {
    CheckHeads(x, weights, out, precision_);
    for (int64_t h = 0; h < static_cast<int64_t>(weights.size()); ++h) {
      const PackedMatrix& weight = weights[h];
      for (int64_t i = 0; i < x.values.rows; ++i) {
        const std::vector<double> all = RowFor(x, i, weight.dtype, precision_);
        const std::vector<double> row(all.begin() + h * weight.cols,
                                      all.begin() + (h + 1) * weight.cols);
        for (int64_t r = 0; r < weight.rows; ++r) {
          out.Row(i)[h * weight.rows + r] = static_cast<float>(Dot(weight, r, row));
        }
      }
    }
  }

  Activation MatMulGlu(const Activation& x, const FfnWeights& ffn, Arena* arena) override {
    CheckGlu(x, ffn, precision_);
    const ActivationBuffer result =
        AllocateActivation(x.values.rows, ffn.gate.rows, precision_, ActivationParts::kAll, arena);
    for (int64_t i = 0; i < x.values.rows; ++i) {
      const auto gate_row = RowFor(x, i, ffn.gate.dtype, precision_);
      const auto up_row = RowFor(x, i, ffn.up.dtype, precision_);
      for (int64_t r = 0; r < ffn.gate.rows; ++r) {
        const double gate = Dot(ffn.gate, r, gate_row) + At(ffn.gate_bias, r);
        const double up = Dot(ffn.up, r, up_row) + At(ffn.up_bias, r);
        result.values.Row(i)[r] = static_cast<float>(GluTruth(ffn.glu, gate, up));
      }
    }
    QuantizeRows(result.values, result);
    return result.View();
  }

  void RopeTable(absl::Span<const int64_t> positions, absl::Span<const double> inv_freq,
                 float scale, MatrixView cos, MatrixView sin) override {
    CHECK(cos.rows == sin.rows && cos.cols == sin.cols);
    CHECK_EQ(static_cast<int64_t>(positions.size()), cos.rows);
    CHECK_EQ(static_cast<int64_t>(inv_freq.size()), cos.cols);
    for (int64_t i = 0; i < cos.rows; ++i) {
      for (int64_t j = 0; j < cos.cols; ++j) {
        const double angle = static_cast<double>(positions[i]) * inv_freq[j];
        cos.Row(i)[j] = static_cast<float>(std::cos(angle) * scale);
        sin.Row(i)[j] = static_cast<float>(std::sin(angle) * scale);
      }
    }
  }

  void Rope(MatrixView x, int head_dim, RopeStyle style, ConstMatrixView cos,
            ConstMatrixView sin) override {
    CheckRope(x, head_dim, cos, sin);
    const int64_t pairs = cos.cols;
    for (int64_t i = 0; i < x.rows; ++i) {
      for (float* head = x.Row(i); head != x.Row(i) + x.cols; head += head_dim) {
        for (int64_t j = 0; j < pairs; ++j) {
          float& a = style == RopeStyle::kInterleaved ? head[2 * j] : head[j];
          float& b = style == RopeStyle::kInterleaved ? head[2 * j + 1] : head[j + pairs];
          const double c = cos.Row(i)[j];
          const double s = sin.Row(i)[j];
          const double rotated = a * c - b * s;
          b = static_cast<float>(a * s + b * c);
          a = static_cast<float>(rotated);
        }
      }
    }
  }

  void StoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
               absl::Span<const KvSpan> spans) override {
    CheckStoreKv(k, v, layer, spans);
    ReferenceStoreKv(k, v, layer, spans);
  }

  Activation Attend(const AttendCall& call, Arena* arena) override {
    CheckAttend(call);
    const ActivationBuffer result = AllocateAttended(call, precision_, arena);
    for (int64_t i = 0; i < call.q.rows; ++i) {  // the results of rows without a span are zeros
      std::fill_n(result.values.Row(i), result.values.cols, 0.0f);
    }
    ReferenceAttend(call, result.values);
    QuantizeRows(result.values, result);
    return result.View();
  }

  void CausalConv(const CausalConvCall& call) override {
    CheckCausalConv(call);
    ReferenceCausalConv(call);
  }

  void DeltaNet(const DeltaNetCall& call) override {
    CheckDeltaNet(call);
    ReferenceDeltaNet(call);
  }

  Activation GatedNorm(ConstMatrixView x, ConstMatrixView z, absl::Span<const float> weight,
                       float eps, Arena* arena) override {
    CheckGatedNorm(x, z, weight);
    const ActivationBuffer result =
        AllocateActivation(x.rows, x.cols, precision_, ActivationParts::kAll, arena);
    const auto head_dim = static_cast<int64_t>(weight.size());
    for (int64_t i = 0; i < x.rows; ++i) {
      float* row = result.values.Row(i);
      for (int64_t at = 0; at < x.cols; at += head_dim) {
        NormalizeInto(x.Row(i) + at, weight, eps, row + at);
      }
      for (int64_t c = 0; c < x.cols; ++c) {
        row[c] = static_cast<float>(GluTruth({}, z.Row(i)[c], row[c]));
      }
    }
    QuantizeRows(result.values, result);
    return result.View();
  }

  void Gate(ConstMatrixView logits, const GateSpec& spec, int32_t* ids, float* weights) override {
    CheckGate(logits, spec);
    for (int64_t t = 0; t < logits.rows; ++t) {
      ReferenceGate(logits.Row(t), spec, ids + t * spec.top_k, weights + t * spec.top_k);
    }
  }

  void GroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, MatrixView out,
                  Arena* arena) override {
    CheckGroupedFfn(x, groups, out, precision_);
    const size_t mark = arena->used();
    for (const ExpertGroup& group : groups) {
      for (size_t i = 0; i < group.rows.size(); ++i) {
        const Activation row = RowOf(x, group.rows[i]);
        const Activation hidden = MatMulGlu(row, *group.weights, arena);
        const MatMulTarget down = {.weight = group.weights->down,
                                   .out = out.RowRange(group.out_rows[i], 1),
                                   .bias = group.weights->down_bias};
        MatMul(hidden, {&down, 1});
        arena->ResetTo(mark);
      }
    }
  }

  void CombineExperts(ConstMatrixView expert_out, int slots, const int32_t* rows,
                      const float* weights, MatrixView out) override {
    CHECK_EQ(expert_out.cols, out.cols);
    for (int64_t t = 0; t < out.rows; ++t) {
      for (int64_t c = 0; c < out.cols; ++c) {
        double sum = 0;
        for (int s = 0; s < slots; ++s) {
          sum +=
              static_cast<double>(weights[t * slots + s]) * expert_out.Row(rows[t * slots + s])[c];
        }
        out.Row(t)[c] = static_cast<float>(out.Row(t)[c] + sum);
      }
    }
  }

  void AccumulateExpert(ConstMatrixView expert_out, const ExpertTerms& terms,
                        MatrixView sum) override {
    CheckExpertTerms(expert_out, terms, sum);
    for (size_t i = 0; i < terms.rows.size(); ++i) {
      const float* x = expert_out.Row(terms.rows[i]);
      float* out = sum.Row(terms.tokens[i]);
      for (int64_t c = 0; c < sum.cols; ++c) {
        out[c] = static_cast<float>(out[c] + static_cast<double>(terms.weights[i]) * x[c]);
      }
    }
  }

  void Add(ConstMatrixView x, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    for (int64_t t = 0; t < out.rows; ++t) {
      for (int64_t c = 0; c < out.cols; ++c) out.Row(t)[c] += x.Row(t)[c];
    }
  }

  void AddScaled(ConstMatrixView x, float scale, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    for (int64_t t = 0; t < out.rows; ++t) {
      for (int64_t c = 0; c < out.cols; ++c) {
        out.Row(t)[c] =
            static_cast<float>(out.Row(t)[c] + static_cast<double>(scale) * x.Row(t)[c]);
      }
    }
  }

  void Scale(MatrixView x, float scale) override {
    for (int64_t t = 0; t < x.rows; ++t) {
      for (int64_t c = 0; c < x.cols; ++c) x.Row(t)[c] *= scale;
    }
  }

  void AddGated(ConstMatrixView x, absl::Span<const float> gate, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    CHECK_EQ(static_cast<int64_t>(gate.size()), x.rows);
    for (int64_t t = 0; t < out.rows; ++t) {
      const double sigmoid = SigmoidTruth(gate[t]);
      for (int64_t c = 0; c < out.cols; ++c) {
        out.Row(t)[c] = static_cast<float>(out.Row(t)[c] + sigmoid * x.Row(t)[c]);
      }
    }
  }

 private:
  // Returns row `row` of x as a separate Activation.
  static Activation RowOf(const Activation& x, int64_t row) {
    Activation result;
    result.values = x.values.RowRange(row, 1);
    if (x.quants == nullptr) return result;
    const int64_t blocks = x.values.cols / kQuantBlock;
    result.quants = x.quants + row * x.values.cols;
    result.scales = x.scales + row * blocks;
    result.sums = x.sums + row * blocks;
    result.half_sums = x.half_sums + 2 * row * blocks;
    return result;
  }

  Precision precision_;
};

}  // namespace

std::unique_ptr<KernelBackend> MakeReferenceBackend(Precision precision) {
  return std::make_unique<ReferenceBackend>(precision);
}

}  // namespace tidepool::kernels
