#include "kernels/counting_backend.h"

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "kernels/ops.h"

namespace tidepool::kernels {
namespace {

// Large because each op is a method.
class CountingBackend final : public KernelBackend {
 public:
  CountingBackend(Precision precision, int threads) : precision_(precision), threads_(threads) {}

  std::string Description() const override { return "counting"; }
  Precision precision() const override { return precision_; }
  int threads() const override { return threads_; }

  Activation Quantize(ConstMatrixView x, Arena* arena) override {
    Activation result =
        AllocateActivation(x.rows, x.cols, precision_, ActivationParts::kInt8Only, arena).View();
    result.values = x;
    return result;
  }
  Activation QuantizeInTwo(const Activation& x, Arena* arena) override {
    return AllocateActivation(2 * x.values.rows, x.values.cols, precision_, ActivationParts::kAll,
                              arena)
        .View();
  }
  Activation Norm(ConstMatrixView x, absl::Span<const float>, float, Arena* arena) override {
    return AllocateActivation(x.rows, x.cols, precision_, ActivationParts::kAll, arena).View();
  }
  void MatMulHead(const Activation&, const HeadTarget& target, Arena* arena) override {
    const size_t mark = arena->used();
    AllocateHeadScratch(target, threads_, arena);
    arena->ResetTo(mark);
  }
  Activation MatMulGlu(const Activation& x, const FfnWeights& ffn, Arena* arena) override {
    return AllocateActivation(x.values.rows, ffn.gate.rows, precision_, ActivationParts::kAll,
                              arena)
        .View();
  }
  Activation Attend(const AttendCall& call, Arena* arena) override {
    const ActivationBuffer result = AllocateAttended(call, precision_, arena);
    arena->Reserve(AttendScratchBytes(call, threads_));
    return result.View();
  }
  Activation GatedNorm(ConstMatrixView x, ConstMatrixView, absl::Span<const float>, float,
                       Arena* arena) override {
    return AllocateActivation(x.rows, x.cols, precision_, ActivationParts::kAll, arena).View();
  }
  void GroupedFfn(const Activation&, absl::Span<const ExpertGroup> groups, MatrixView,
                  Arena* arena) override {
    if (groups.empty()) return;
    const size_t mark = arena->used();
    AllocateGroupScratch(groups, precision_, arena);
    arena->ResetTo(mark);
  }

  // All other ops allocate nothing.
  void CopyIn(absl::Span<const std::byte>, std::byte*) override {}
  absl::Status CopyOut(const std::byte*, absl::Span<std::byte>) override {
    return absl::OkStatus();
  }
  void CopyWithin(const std::byte*, std::byte*, size_t) override {}
  absl::Status Sync() override { return absl::OkStatus(); }
  absl::Status PinHost(absl::Span<std::byte>) override { return absl::OkStatus(); }
  void UnpinHost(absl::Span<std::byte>) override {}
  OpMark MarkOps() override { return 0; }
  CopyTicket BeginCopyIn(absl::Span<const std::byte>, std::byte*, OpMark) override {
    return ++copies_;
  }
  void AwaitCopy(CopyTicket) override {}
  absl::StatusOr<std::optional<absl::Duration>> CopyTime(CopyTicket) override {
    return absl::ZeroDuration();
  }
  void Zero(MatrixView) override {}
  void GatherRows(ConstMatrixView, absl::Span<const int64_t>, MatrixView) override {}
  void CopyHeads(const HeadCopy&, ConstMatrixView, MatrixView) override {}
  void ScanRows(ConstMatrixView, float, RowScan*) override {}
  void Embed(const PackedMatrix&, absl::Span<const int32_t>, MatrixView) override {}
  void HeadNorm(MatrixView, absl::Span<const float>, float) override {}
  void MatMul(const Activation&, absl::Span<const MatMulTarget>) override {}
  void MatMulHeads(const Activation&, absl::Span<const PackedMatrix>, MatrixView) override {}
  void RopeTable(absl::Span<const int64_t>, absl::Span<const double>, float, MatrixView,
                 MatrixView) override {}
  void Rope(MatrixView, int, RopeStyle, ConstMatrixView, ConstMatrixView) override {}
  void StoreKv(ConstMatrixView, ConstMatrixView, const KvLayer&,
               absl::Span<const KvSpan>) override {}
  void CausalConv(const CausalConvCall&) override {}
  void DeltaNet(const DeltaNetCall&) override {}
  void Gate(ConstMatrixView, const GateSpec&, int32_t*, float*) override {}
  void CombineExperts(ConstMatrixView, int, const int32_t*, const float*, MatrixView) override {}
  void AccumulateExpert(ConstMatrixView, const ExpertTerms&, MatrixView) override {}
  void Add(ConstMatrixView, MatrixView) override {}
  void AddScaled(ConstMatrixView, float, MatrixView) override {}
  void Scale(MatrixView, float) override {}
  void AddGated(ConstMatrixView, absl::Span<const float>, MatrixView) override {}

 private:
  const Precision precision_;
  const int threads_;
  CopyTicket copies_ = 0;
};

}  // namespace

std::unique_ptr<KernelBackend> MakeCountingBackend(Precision precision, int threads) {
  return std::make_unique<CountingBackend>(precision, threads);
}

}  // namespace tidepool::kernels
