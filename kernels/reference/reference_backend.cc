#include "kernels/reference/reference_backend.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

double SiluTruth(double x) { return x / (1 + std::exp(-x)); }

// Converts one block of a row to int8, as defined in ops.h.
void QuantizeBlock(const float* x, int64_t block, const ActivationBuffer& out, int64_t row) {
  const int64_t blocks = out.values.cols / kQuantBlock;
  int8_t* q = out.quants + row * out.values.cols + block * kQuantBlock;
  float amax = 0;
  bool finite = true;
  for (int k = 0; k < kQuantBlock; ++k) {
    finite = finite && std::isfinite(x[k]);
    amax = std::max(amax, std::fabs(x[k]));
  }
  const bool zero = !finite || amax < kTinyBlock;
  const float scale = !finite ? NAN : zero ? 0.0f : amax / 127;
  int16_t* half_sums = out.half_sums + 2 * (row * blocks + block);
  half_sums[0] = half_sums[1] = 0;
  for (int k = 0; k < kQuantBlock; ++k) {
    q[k] = zero ? 0 : static_cast<int8_t>(std::nearbyint(x[k] * (127 / amax)));
    half_sums[k / kHalfBlock] += q[k];
  }
  out.scales[row * blocks + block] = scale;
  out.sums[row * blocks + block] = scale * static_cast<float>(half_sums[0] + half_sums[1]);
}

// Fills the int8 form of `values`, if `out` has one.
void QuantizeRows(ConstMatrixView values, const ActivationBuffer& out) {
  if (out.quants == nullptr) return;
  for (int64_t row = 0; row < values.rows; ++row) {
    for (int64_t b = 0; b < values.cols / kQuantBlock; ++b) {
      QuantizeBlock(values.Row(row) + b * kQuantBlock, b, out, row);
    }
  }
}

void NormalizeInto(const float* x, absl::Span<const float> weight, float eps, float* out) {
  const int64_t n = static_cast<int64_t>(weight.size());
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  const double scale = 1 / std::sqrt(squares / n + eps);
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<float>(x[i] * scale * weight[i]);
}

// Row `row` of x as the product uses it: int8 values if the weight is quantised and x has them.
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

// The product of row `r` of a weight with a row of x.
double Dot(const PackedMatrix& weight, int64_t r, const std::vector<double>& x) {
  std::vector<float> w(weight.cols);
  UnpackRow(weight, r, absl::MakeSpan(w));
  double sum = 0;
  for (int64_t k = 0; k < weight.cols; ++k) sum += w[k] * x[k];
  return sum;
}

// The positions of the elements of one token's keys or values of one head.
struct KvPlace {
  // `base`: the head's elements in the block. `step` is the distance between two of them.
  KvPlace(DType type, std::byte* base, int dims, int64_t at, int64_t step)
      : dtype(type), dim(dims), first(at), stride(step), scales(base), elements(base) {
    if (dtype == DType::kQ8_0) elements += sizeof(uint16_t) * dim * kKvBlockTokens / kQuantBlock;
  }

  int64_t Index(int d) const { return first + d * stride; }
  // Scales have the order of the elements, one per 32 dimensions.
  std::byte* Scale(int d) const {
    const int64_t at =
        stride == 1 ? first / kQuantBlock + d / kQuantBlock : first + d / kQuantBlock * stride;
    return scales + sizeof(uint16_t) * at;
  }

  float Load(int d) const {
    if (dtype == DType::kF32) {
      float value;
      std::memcpy(&value, elements + 4 * Index(d), 4);
      return value;
    }
    uint16_t half;
    std::memcpy(&half, dtype == DType::kQ8_0 ? Scale(d) : elements + 2 * Index(d), 2);
    if (dtype == DType::kBF16) return BF16ToF32(half);
    if (dtype == DType::kF16) return F16ToF32(half);
    return F16ToF32(half) * static_cast<float>(static_cast<int8_t>(elements[Index(d)]));
  }

  void Store(const float* values) const {
    if (dtype == DType::kQ8_0) return StoreQuants(values);
    for (int d = 0; d < dim; ++d) {
      if (dtype == DType::kF32) {
        std::memcpy(elements + 4 * Index(d), &values[d], 4);
        continue;
      }
      const uint16_t half = dtype == DType::kF16 ? F32ToF16(values[d]) : F32ToBF16(values[d]);
      std::memcpy(elements + 2 * Index(d), &half, 2);
    }
  }

  void StoreQuants(const float* values) const {
    std::vector<int8_t> quants(dim);
    std::vector<float> floats(dim / kQuantBlock);
    std::vector<float> sums(dim / kQuantBlock);
    std::vector<int16_t> half_sums(2 * dim / kQuantBlock);
    ActivationBuffer out;
    out.values.cols = dim;
    out.quants = quants.data();
    out.scales = floats.data();
    out.sums = sums.data();
    out.half_sums = half_sums.data();
    for (int b = 0; b < dim / kQuantBlock; ++b) QuantizeBlock(values + b * kQuantBlock, b, out, 0);
    for (int d = 0; d < dim; ++d) {
      elements[Index(d)] = static_cast<std::byte>(quants[d]);
      const uint16_t scale = F32ToF16(floats[d / kQuantBlock]);
      std::memcpy(Scale(d), &scale, 2);
    }
  }

  DType dtype;
  int dim;
  int64_t first;
  int64_t stride;
  std::byte* scales;
  std::byte* elements;
};

std::byte* BlockOf(const KvLayer& layer, const KvSpan& span, int64_t slot) {
  return layer.arena + span.blocks[slot / kKvBlockTokens] * layer.block_bytes;
}

KvPlace KeyPlace(const KvLayer& layer, const KvSpan& span, int64_t slot, int head) {
  std::byte* base = BlockOf(layer, span, slot) + layer.k_offset;
  return KvPlace(layer.dtype, base + head * KvHeadBytes(layer.dtype, layer.k_dim), layer.k_dim,
                 slot % kKvBlockTokens, kKvBlockTokens);
}

KvPlace ValuePlace(const KvLayer& layer, const KvSpan& span, int64_t slot, int head) {
  std::byte* base = BlockOf(layer, span, slot) + layer.v_offset;
  return KvPlace(layer.dtype, base + head * KvHeadBytes(layer.dtype, layer.v_dim), layer.v_dim,
                 slot % kKvBlockTokens * layer.v_dim, 1);
}

class ReferenceBackend final : public KernelBackend {
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
        const float value =
            static_cast<float>(sums[r] + (target.bias.empty() ? 0 : target.bias[r]));
        if (i < target.out.rows) target.out.Row(i)[r] = value;
        if (r < target.argmax_vocab) AddToArgMax(static_cast<int32_t>(r), value, &best);
      }
      if (i >= target.out.rows) target.best[i - target.out.rows] = best;
    }
  }

  Activation MatMulSwiGlu(const Activation& x, const PackedMatrix& gate, const PackedMatrix& up,
                          Arena* arena) override {
    CheckMatMul(x, gate, precision_);
    CheckMatMul(x, up, precision_);
    CHECK_EQ(gate.rows, up.rows);
    const ActivationBuffer result =
        AllocateActivation(x.values.rows, gate.rows, precision_, ActivationParts::kAll, arena);
    for (int64_t i = 0; i < x.values.rows; ++i) {
      const auto gate_row = RowFor(x, i, gate.dtype, precision_);
      const auto up_row = RowFor(x, i, up.dtype, precision_);
      for (int64_t r = 0; r < gate.rows; ++r) {
        result.values.Row(i)[r] =
            static_cast<float>(SiluTruth(Dot(gate, r, gate_row)) * Dot(up, r, up_row));
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
    for (const KvSpan& span : spans) {
      for (int64_t i = 0; i < span.rows; ++i) {
        for (int h = 0; h < layer.kv_heads; ++h) {
          const int64_t slot = span.first_slot + i;
          const int64_t row = span.first_row + i;
          KeyPlace(layer, span, slot, h).Store(k.Row(row) + int64_t{h} * layer.k_dim);
          ValuePlace(layer, span, slot, h).Store(v.Row(row) + int64_t{h} * layer.v_dim);
        }
      }
    }
  }

  Activation Attend(const AttendCall& call, Arena* arena) override {
    CheckAttend(call);
    const auto& [q, heads, scale, layer, spans] = call;
    const ActivationBuffer result = AllocateActivation(q.rows, int64_t{heads} * layer.v_dim,
                                                       precision_, ActivationParts::kAll, arena);
    for (int64_t i = 0; i < q.rows; ++i) {  // rows without a span give zeros
      std::fill_n(result.values.Row(i), result.values.cols, 0.0f);
    }
    for (const KvSpan& span : spans) {
      for (int64_t i = 0; i < span.rows; ++i) {
        const int64_t row = span.first_row + i;
        for (int h = 0; h < heads; ++h) {
          const int kv_head = h / (heads / layer.kv_heads);
          AttendHead(q.Row(row) + int64_t{h} * layer.k_dim, scale,
                     {layer, span, kv_head, VisibleSlots(span, i)},
                     result.values.Row(row) + int64_t{h} * layer.v_dim);
        }
      }
    }
    QuantizeRows(result.values, result);
    return result.View();
  }

  void Gate(ConstMatrixView logits, const GateSpec& spec, int32_t* ids, float* weights) override {
    CheckGate(logits, spec);
    for (int64_t t = 0; t < logits.rows; ++t) {
      GateRow(logits.Row(t), spec, ids + t * spec.top_k, weights + t * spec.top_k);
    }
  }

  void GroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, MatrixView out,
                  Arena* arena) override {
    CheckGroupedFfn(x, groups, out, precision_);
    const size_t mark = arena->used();
    for (const ExpertGroup& group : groups) {
      for (size_t i = 0; i < group.rows.size(); ++i) {
        const Activation row = RowOf(x, group.rows[i]);
        const Activation hidden = MatMulSwiGlu(row, group.weights->gate, group.weights->up, arena);
        const MatMulTarget down = {.weight = group.weights->down,
                                   .out = out.RowRange(group.out_rows[i], 1)};
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

  void AddGated(ConstMatrixView x, absl::Span<const float> gate, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    CHECK_EQ(static_cast<int64_t>(gate.size()), x.rows);
    for (int64_t t = 0; t < out.rows; ++t) {
      const double sigmoid = 1 / (1 + std::exp(-static_cast<double>(gate[t])));
      for (int64_t c = 0; c < out.cols; ++c) {
        out.Row(t)[c] = static_cast<float>(out.Row(t)[c] + sigmoid * x.Row(t)[c]);
      }
    }
  }

 private:
  // The KV that one head of a row sees.
  struct HeadView {
    const KvLayer& layer;
    const KvSpan& span;
    int kv_head;
    SlotRange visible;
  };

  // Softmax over all visible slots at once.
  static void AttendHead(const float* q, float scale, const HeadView& view, float* out) {
    const auto& [layer, span, kv_head, visible] = view;
    std::vector<double> scores;
    for (int64_t slot = visible.begin; slot < visible.end; ++slot) {
      const KvPlace key = KeyPlace(layer, span, slot, kv_head);
      double score = 0;
      for (int d = 0; d < layer.k_dim; ++d) score += static_cast<double>(q[d]) * key.Load(d);
      scores.push_back(score * scale);
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    for (double& score : scores) total += score = std::exp(score - max);
    for (int d = 0; d < layer.v_dim; ++d) {
      double sum = 0;
      for (int64_t slot = visible.begin; slot < visible.end; ++slot) {
        sum += scores[slot - visible.begin] * ValuePlace(layer, span, slot, kv_head).Load(d);
      }
      out[d] = static_cast<float>(sum / total);
    }
  }

  static void GateRow(const float* logits, const GateSpec& spec, int32_t* ids, float* weights) {
    const double max = *std::max_element(logits, logits + spec.experts);
    double total = 0;
    for (int e = 0; e < spec.experts; ++e) total += std::exp(logits[e] - max);
    std::vector<float> shares(spec.experts);
    for (int e = 0; e < spec.experts; ++e) {
      shares[e] = static_cast<float>(std::exp(logits[e] - max) / total);
    }
    std::vector<int32_t> order(spec.experts);
    std::iota(order.begin(), order.end(), 0);
    // A NaN ranks below every number, so this stays an order.
    const auto rank = [&](int32_t e) { return std::isnan(shares[e]) ? -1.0f : shares[e]; };
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return rank(a) > rank(b); });
    double chosen = 0;
    for (int s = 0; s < spec.top_k; ++s) chosen += shares[order[s]];
    for (int s = 0; s < spec.top_k; ++s) {
      ids[s] = order[s];
      weights[s] = static_cast<float>(shares[order[s]] / (spec.normalize ? chosen : 1.0));
    }
  }

  // Row `row` of x as a separate Activation.
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
