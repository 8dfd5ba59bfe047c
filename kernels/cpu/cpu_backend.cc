#include "kernels/cpu/cpu_backend.h"

#include <algorithm>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_pool.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/gate.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/matmul.h"
#include "kernels/cpu/recurrent.h"
#include "kernels/cpu/row_scan.h"
#include "kernels/host_backend.h"
#include "kernels/math.h"
#include "kernels/ops.h"
#include "kernels/panel.h"

namespace tidepool::kernels {
namespace {

// Number of rows in a range, if a row takes a microsecond or less.
constexpr int64_t kRowGrain = 8;

// Large because each op is a method.
class CpuBackend final : public HostBackend {
 public:
  CpuBackend(const KernelTable& kernels, const CpuOptions& options)
      : pool_(options.threads), kernels_(kernels), context_{&kernels_, &pool_, options.precision} {}

  std::string Description() const override {
    return absl::StrCat("cpu ", kernels_.name, ", ", pool_.threads(),
                        pool_.threads() == 1 ? " thread" : " threads");
  }
  Precision precision() const override { return context_.precision; }
  int threads() const override { return pool_.threads(); }

  void Embed(const PackedMatrix& table, absl::Span<const int32_t> ids, MatrixView out) override {
    CHECK_EQ(static_cast<int64_t>(ids.size()), out.rows);
    CHECK_EQ(table.cols, out.cols);
    ForRows(out.rows, [&](int64_t i, int) {
      UnpackRow(table, ids[i], absl::MakeSpan(out.Row(i), out.cols));
    });
  }

  Activation Quantize(ConstMatrixView x, Arena* arena) override {
    const ActivationBuffer buffer =
        AllocateActivation(x.rows, x.cols, precision(), ActivationParts::kInt8Only, arena);
    QuantizeRows(context_, x, buffer);
    Activation result = buffer.View();
    result.values = x;
    return result;
  }

  Activation QuantizeInTwo(const Activation& x, Arena* arena) override {
    CheckQuantizeInTwo(x);
    const ActivationBuffer result = AllocateActivation(2 * x.values.rows, x.values.cols,
                                                       precision(), ActivationParts::kAll, arena);
    ForRows(x.values.rows, [&](int64_t i, int) {
      const float* row = x.values.Row(i);
      float* left = result.values.Row(x.values.rows + i);
      std::copy_n(row, x.values.cols, result.values.Row(i));
      for (int64_t k = 0; k < x.values.cols; ++k) {
        const int64_t at = i * x.values.cols + k;
        left[k] = row[k] - x.scales[at / kQuantBlock] * static_cast<float>(x.quants[at]);
      }
    });
    QuantizeRows(context_, result.values, result);
    return result.View();
  }

  void ScanRows(ConstMatrixView x, float limit, RowScan* out) override {
    CheckScanRows(x, limit);
    ForRows(x.rows, [&](int64_t i, int) {
      out[i] = ScanRow(absl::MakeConstSpan(x.Row(i), x.cols), limit);
    });
  }

  Activation Norm(ConstMatrixView x, absl::Span<const float> weight, float eps,
                  Arena* arena) override {
    CHECK_EQ(static_cast<int64_t>(weight.size()), x.cols);
    const ActivationBuffer result =
        AllocateActivation(x.rows, x.cols, precision(), ActivationParts::kAll, arena);
    const int64_t blocks = x.cols / kQuantBlock;
    ForRows(x.rows, [&](int64_t i, int) {
      float* values = result.values.Row(i);
      kernels_.norm(x.Row(i), weight.data(), x.cols, eps, values);
      if (result.quants == nullptr) return;
      kernels_.quantize(values, blocks,
                        {result.quants + i * x.cols, result.scales + i * blocks,
                         result.sums + i * blocks, result.half_sums + 2 * i * blocks});
    });
    return result.View();
  }

  void HeadNorm(MatrixView x, absl::Span<const float> weight, float eps) override {
    const int64_t head_dim = static_cast<int64_t>(weight.size());
    CHECK(head_dim > 0 && x.cols % head_dim == 0) << x.cols << " columns, heads of " << head_dim;
    ForRows(x.rows, [&](int64_t i, int) {
      for (int64_t at = 0; at < x.cols; at += head_dim) {
        float* head = x.Row(i) + at;
        kernels_.norm(head, weight.data(), head_dim, eps, head);
      }
    });
  }

  void MatMul(const Activation& x, absl::Span<const MatMulTarget> targets) override {
    for (const MatMulTarget& target : targets) CheckTarget(x, target, precision());
    MultiplyTargets(context_, x, targets);
  }

  void MatMulHead(const Activation& x, const HeadTarget& target, Arena* arena) override {
    CheckHead(x, target, precision());
    MultiplyHead(context_, x, target, arena);
  }

  void MatMulHeads(const Activation& x, absl::Span<const PackedMatrix> weights,
                   MatrixView out) override {
    CheckHeads(x, weights, out, precision());
    MultiplyHeads(context_, x, weights, out);
  }

  Activation MatMulGlu(const Activation& x, const FfnWeights& ffn, Arena* arena) override {
    CheckGlu(x, ffn, precision());
    const ActivationBuffer result =
        AllocateActivation(x.values.rows, ffn.gate.rows, precision(), ActivationParts::kAll, arena);
    MultiplyGlu(context_, x, ffn, result);
    return result.View();
  }

  void RopeTable(absl::Span<const int64_t> positions, absl::Span<const double> inv_freq,
                 float scale, MatrixView cos, MatrixView sin) override {
    CHECK(cos.rows == sin.rows && cos.cols == sin.cols);
    CHECK_EQ(static_cast<int64_t>(positions.size()), cos.rows);
    CHECK_EQ(static_cast<int64_t>(inv_freq.size()), cos.cols);
    ForRows(cos.rows, [&](int64_t i, int) {
      for (int64_t j = 0; j < cos.cols; ++j) {
        const SinCosResult turn = SinCos(static_cast<double>(positions[i]) * inv_freq[j]);
        cos.Row(i)[j] = static_cast<float>(turn.cos * scale);
        sin.Row(i)[j] = static_cast<float>(turn.sin * scale);
      }
    });
  }

  void Rope(MatrixView x, int head_dim, RopeStyle style, ConstMatrixView cos,
            ConstMatrixView sin) override {
    CheckRope(x, head_dim, cos, sin);
    ForRows(x.rows, [&](int64_t i, int) {
      kernels_.rope(x.Row(i), {static_cast<int>(x.cols / head_dim), head_dim,
                               static_cast<int>(cos.cols), style, cos.Row(i), sin.Row(i)});
    });
  }

  void StoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
               absl::Span<const KvSpan> spans) override {
    CheckStoreKv(k, v, layer, spans);
    StoreKvRows(context_, k, v, layer, spans);
  }

  Activation Attend(const AttendCall& call, Arena* arena) override {
    CheckAttend(call);
    const ActivationBuffer result = AllocateAttended(call, precision(), arena);
    AttendRows(context_, call, result, arena);
    return result.View();
  }

  void CausalConv(const CausalConvCall& call) override {
    CheckCausalConv(call);
    ConvolveRows(context_, call);
  }

  void DeltaNet(const DeltaNetCall& call) override {
    CheckDeltaNet(call);
    AdvanceDeltaNet(context_, call);
  }

  Activation GatedNorm(ConstMatrixView x, ConstMatrixView z, absl::Span<const float> weight,
                       float eps, Arena* arena) override {
    CheckGatedNorm(x, z, weight);
    const ActivationBuffer result =
        AllocateActivation(x.rows, x.cols, precision(), ActivationParts::kAll, arena);
    NormalizeGated(context_, {x, z, weight, eps}, result);
    return result.View();
  }

  void Gate(ConstMatrixView logits, const GateSpec& spec, int32_t* ids, float* weights) override {
    CheckGate(logits, spec);
    pool_.ParallelFor(logits.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
      RowGate gate(kernels_, spec);
      for (int64_t t = begin; t < end; ++t) {
        gate.Choose(logits.Row(t), ids + t * spec.top_k, weights + t * spec.top_k);
      }
    });
  }

  void GroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, MatrixView out,
                  Arena* arena) override {
    CheckGroupedFfn(x, groups, out, precision());
    MultiplyGroups(context_, x, groups, out, arena);
  }

  void CombineExperts(ConstMatrixView expert_out, int slots, const int32_t* rows,
                      const float* weights, MatrixView out) override {
    CHECK_EQ(expert_out.cols, out.cols);
    pool_.ParallelFor(out.rows, kRowGrain, [&](int64_t begin, int64_t end, int) {
      std::vector<float> sum(out.cols);
      for (int64_t t = begin; t < end; ++t) {
        std::fill(sum.begin(), sum.end(), 0.0f);
        for (int64_t at = t * slots; at < (t + 1) * slots; ++at) {
          CHECK(rows[at] >= 0 && rows[at] < expert_out.rows) << "row " << rows[at];
          kernels_.add_scaled(expert_out.Row(rows[at]), weights[at], out.cols, sum.data());
        }
        kernels_.add(sum.data(), out.cols, out.Row(t));
      }
    });
  }

  void AccumulateExpert(ConstMatrixView expert_out, const ExpertTerms& terms,
                        MatrixView sum) override {
    CheckExpertTerms(expert_out, terms, sum);
    ForRows(static_cast<int64_t>(terms.rows.size()), [&](int64_t i, int) {
      kernels_.add_scaled(expert_out.Row(terms.rows[i]), terms.weights[i], sum.cols,
                          sum.Row(terms.tokens[i]));
    });
  }

  void Add(ConstMatrixView x, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    ForRows(x.rows, [&](int64_t t, int) { kernels_.add(x.Row(t), x.cols, out.Row(t)); });
  }

  void AddScaled(ConstMatrixView x, float scale, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    ForRows(x.rows,
            [&](int64_t t, int) { kernels_.add_scaled(x.Row(t), scale, x.cols, out.Row(t)); });
  }

  void Scale(MatrixView x, float scale) override {
    ForRows(x.rows, [&](int64_t t, int) { kernels_.scale(x.Row(t), scale, x.cols); });
  }

  void AddGated(ConstMatrixView x, absl::Span<const float> gate, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    CHECK_EQ(static_cast<int64_t>(gate.size()), x.rows);
    ForRows(x.rows, [&](int64_t t, int) {
      kernels_.add_scaled(x.Row(t), Sigmoid(gate[t]), x.cols, out.Row(t));
    });
  }

 private:
  // Calls body(row, worker) for every row.
  template <typename Body>
  void ForRows(int64_t rows, Body body) {
    pool_.ParallelFor(rows, kRowGrain, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) body(i, worker);
    });
  }

  base::ThreadPool pool_;
  const KernelTable& kernels_;
  CpuContext context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelBackend>> MakeCpuBackend(const CpuOptions& options) {
  constexpr int kMaxThreads = 1024;
  if (options.threads < 1 || options.threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("threads is ", options.threads, ": it must be from 1 to ", kMaxThreads));
  }
  ASSIGN_OR_RETURN(const KernelTable* kernels, ChooseKernels(options.isa, DetectCpu()));
  return std::make_unique<CpuBackend>(*kernels, options);
}

}  // namespace tidepool::kernels
