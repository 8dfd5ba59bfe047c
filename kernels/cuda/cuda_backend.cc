#include "kernels/cuda/cuda_backend.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/copy_lane.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/scratch.h"
#include "kernels/cuda/staging.h"
#include "kernels/math.h"
#include "kernels/ops.h"

namespace tidepool::kernels {
namespace {

class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(int device) : device_(device) {}
  std::byte* Allocate(size_t bytes) override { return cuda::AllocateDevice(device_, bytes); }
  void Free(std::byte* data) override { cuda::FreeDevice(device_, data); }
  bool on_host() const override { return false; }
  std::optional<size_t> available() const override { return cuda::FreeDeviceBytes(device_); }

 private:
  int device_;
};

struct DeleteStream {
  void operator()(cuda::Stream* stream) const { cuda::DeleteStream(stream); }
};
using StreamOwner = std::unique_ptr<cuda::Stream, DeleteStream>;

// The objects through which the backend uses the device.
struct Streams {
  StreamOwner ops;
  std::unique_ptr<cuda::StagingRing> staging;
  std::unique_ptr<cuda::CopyLane> copies;
};

// Large because each op is a method.
class CudaBackend final : public KernelBackend {
 public:
  CudaBackend(const CudaOptions& options, cuda::DeviceInfo device, Streams streams)
      : device_(options.device),
        memory_(options.device),
        stream_(std::move(streams.ops)),
        staging_(std::move(streams.staging)),
        copies_(std::move(streams.copies)),
        scratch_(options.device, stream_.get()),
        context_{stream_.get(), staging_.get(), options.precision, std::move(device), &scratch_} {}

  std::string Description() const override { return absl::StrCat("cuda ", context_.device.name); }
  Precision precision() const override { return context_.precision; }
  int threads() const override { return context_.threads; }
  Memory* memory() override { return &memory_; }

  void CopyIn(absl::Span<const std::byte> from, std::byte* to) override {
    if (!from.empty()) cuda::CopyHostIn(stream_.get(), from.data(), to, from.size());
  }
  absl::Status CopyOut(const std::byte* from, absl::Span<std::byte> to) override {
    if (!to.empty()) cuda::CopyHostOut(stream_.get(), from, to.data(), to.size());
    return Sync();
  }
  void CopyWithin(const std::byte* from, std::byte* to, size_t bytes) override {
    if (bytes > 0) cuda::CopyOnDevice(stream_.get(), from, to, bytes);
  }
  absl::Status Sync() override {
    RETURN_IF_ERROR(cuda::Synchronize(stream_.get()));
    return copies_->status();
  }

  absl::Status PinHost(absl::Span<std::byte> memory) override {
    return cuda::PinHost(device_, memory.data(), memory.size());
  }
  void UnpinHost(absl::Span<std::byte> memory) override { cuda::UnpinHost(device_, memory.data()); }
  OpMark MarkOps() override { return copies_->MarkOps(); }
  CopyTicket BeginCopyIn(absl::Span<const std::byte> from, std::byte* to, OpMark after) override {
    return copies_->Begin(from, to, after);
  }
  void AwaitCopy(CopyTicket copy) override { copies_->Await(copy); }
  absl::StatusOr<std::optional<absl::Duration>> CopyTime(CopyTicket copy) override {
    return copies_->Time(copy);
  }

  void Zero(MatrixView out) override { cuda::ZeroRows(context_, out); }

  void GatherRows(ConstMatrixView x, absl::Span<const int64_t> rows, MatrixView out) override {
    CheckGatherRows(x, rows, out);
    cuda::GatherRows(context_, x, rows, out);
  }

  void CopyHeads(const HeadCopy& copy, ConstMatrixView from, MatrixView to) override {
    CheckCopyHeads(copy, from, to);
    cuda::CopyHeads(context_, copy, from, to);
  }

  void ScanRows(ConstMatrixView x, float limit, RowScan* out) override {
    CheckScanRows(x, limit);
    cuda::ScanRows(context_, x, limit, out);
  }

  void Embed(const PackedMatrix& table, absl::Span<const int32_t> ids, MatrixView out) override {
    CHECK_EQ(static_cast<int64_t>(ids.size()), out.rows);
    CHECK_EQ(table.cols, out.cols);
    for (const int32_t id : ids) CHECK(id >= 0 && id < table.rows) << "row " << id;
    cuda::EmbedRows(context_, table, ids, out);
  }

  Activation Quantize(ConstMatrixView x, Arena* arena) override {
    const ActivationBuffer buffer =
        AllocateActivation(x.rows, x.cols, precision(), ActivationParts::kInt8Only, arena);
    cuda::QuantizeRows(context_, x, buffer);
    Activation result = buffer.View();
    result.values = x;
    return result;
  }

  Activation QuantizeInTwo(const Activation& x, Arena* arena) override {
    CheckQuantizeInTwo(x);
    const ActivationBuffer result = AllocateActivation(2 * x.values.rows, x.values.cols,
                                                       precision(), ActivationParts::kAll, arena);
    cuda::QuantizeInTwo(context_, x, result);
    return result.View();
  }

  Activation Norm(ConstMatrixView x, absl::Span<const float> weight, float eps,
                  Arena* arena) override {
    CHECK_EQ(static_cast<int64_t>(weight.size()), x.cols);
    const ActivationBuffer result =
        AllocateActivation(x.rows, x.cols, precision(), ActivationParts::kAll, arena);
    cuda::NormRows(context_, x, weight, eps, result);
    return result.View();
  }

  void HeadNorm(MatrixView x, absl::Span<const float> weight, float eps) override {
    const auto head_dim = static_cast<int64_t>(weight.size());
    CHECK(head_dim > 0 && x.cols % head_dim == 0) << x.cols << " columns, heads of " << head_dim;
    cuda::HeadNorm(context_, x, weight, eps);
  }

  void MatMul(const Activation& x, absl::Span<const MatMulTarget> targets) override {
    for (const MatMulTarget& target : targets) CheckTarget(x, target, precision());
    cuda::MultiplyTargets(context_, x, targets);
  }
  void MatMulHead(const Activation& x, const HeadTarget& target, Arena* arena) override {
    CheckHead(x, target, precision());
    cuda::MultiplyHead(context_, x, target, arena);
  }
  void MatMulHeads(const Activation& x, absl::Span<const PackedMatrix> weights,
                   MatrixView out) override {
    CheckHeads(x, weights, out, precision());
    cuda::MultiplyHeads(context_, x, weights, out);
  }
  Activation MatMulGlu(const Activation& x, const FfnWeights& ffn, Arena* arena) override {
    CheckGlu(x, ffn, precision());
    const ActivationBuffer result =
        AllocateActivation(x.values.rows, ffn.gate.rows, precision(), ActivationParts::kAll, arena);
    cuda::MultiplyGlu(context_, x, ffn, result);
    return result.View();
  }

  // The host computes the tables, because math.h's SinCos uses float64.
  void RopeTable(absl::Span<const int64_t> positions, absl::Span<const double> inv_freq,
                 float scale, MatrixView cos, MatrixView sin) override {
    CHECK(cos.rows == sin.rows && cos.cols == sin.cols);
    CHECK(cos.stride == cos.cols && sin.stride == sin.cols);
    CHECK_EQ(static_cast<int64_t>(positions.size()), cos.rows);
    CHECK_EQ(static_cast<int64_t>(inv_freq.size()), cos.cols);
    std::vector<float> coses, sines;
    for (const int64_t position : positions) {
      for (const double frequency : inv_freq) {
        const SinCosResult turn = SinCos(static_cast<double>(position) * frequency);
        coses.push_back(static_cast<float>(turn.cos * scale));
        sines.push_back(static_cast<float>(turn.sin * scale));
      }
    }
    CopyFloats(coses, cos.data);
    CopyFloats(sines, sin.data);
  }

  void Rope(MatrixView x, int head_dim, RopeStyle style, ConstMatrixView cos,
            ConstMatrixView sin) override {
    CheckRope(x, head_dim, cos, sin);
    cuda::RotateRows(context_, x, {head_dim, style, cos, sin});
  }

  void StoreKv(ConstMatrixView k, ConstMatrixView v, const KvLayer& layer,
               absl::Span<const KvSpan> spans) override {
    CheckStoreKv(k, v, layer, spans);
    cuda::StoreKvRows(context_, k, v, layer, spans);
  }

  Activation Attend(const AttendCall& call, Arena* arena) override {
    CheckAttend(call);
    const ActivationBuffer result = AllocateAttended(call, precision(), arena);
    cuda::AttendRows(context_, call, result, arena);
    return result.View();
  }

  void CausalConv(const CausalConvCall& call) override {
    CheckCausalConv(call);
    cuda::ConvolveRows(context_, call);
  }

  void DeltaNet(const DeltaNetCall& call) override {
    CheckDeltaNet(call);
    cuda::AdvanceDeltaNet(context_, call);
  }

  Activation GatedNorm(ConstMatrixView x, ConstMatrixView z, absl::Span<const float> weight,
                       float eps, Arena* arena) override {
    CheckGatedNorm(x, z, weight);
    const ActivationBuffer result =
        AllocateActivation(x.rows, x.cols, precision(), ActivationParts::kAll, arena);
    cuda::GatedNormRows(context_, {x, z, weight, eps}, result);
    return result.View();
  }

  void Gate(ConstMatrixView logits, const GateSpec& spec, int32_t* ids, float* weights) override {
    CheckGate(logits, spec);
    cuda::GateRows(context_, logits, spec, ids, weights);
  }

  void GroupedFfn(const Activation& x, absl::Span<const ExpertGroup> groups, MatrixView out,
                  Arena* arena) override {
    CheckGroupedFfn(x, groups, out, precision());
    cuda::MultiplyGroups(context_, x, groups, out, arena);
  }

  void CombineExperts(ConstMatrixView expert_out, int slots, const int32_t* rows,
                      const float* weights, MatrixView out) override {
    CHECK_EQ(expert_out.cols, out.cols);
    cuda::CombineExperts(context_, expert_out, {slots, rows, weights}, out);
  }

  void AccumulateExpert(ConstMatrixView expert_out, const ExpertTerms& terms,
                        MatrixView sum) override {
    CheckExpertTerms(expert_out, terms, sum);
    cuda::AccumulateExpert(context_, expert_out, terms, sum);
  }

  void Add(ConstMatrixView x, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    cuda::AddRows(context_, x, out);
  }

  void AddScaled(ConstMatrixView x, float scale, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    cuda::AddScaledRows(context_, x, scale, out);
  }

  void Scale(MatrixView x, float scale) override { cuda::ScaleRows(context_, x, scale); }

  void AddGated(ConstMatrixView x, absl::Span<const float> gate, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    CHECK_EQ(static_cast<int64_t>(gate.size()), x.rows);
    cuda::AddGatedRows(context_, x, gate, out);
  }

 private:
  void CopyFloats(const std::vector<float>& from, float* to) {
    CopyIn({reinterpret_cast<const std::byte*>(from.data()), from.size() * sizeof(float)},
           reinterpret_cast<std::byte*>(to));
  }

  const int device_;
  DeviceMemory memory_;
  StreamOwner stream_;
  std::unique_ptr<cuda::StagingRing> staging_;
  std::unique_ptr<cuda::CopyLane> copies_;
  cuda::DeviceScratch scratch_;
  cuda::CudaContext context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelBackend>> MakeCudaBackend(const CudaOptions& options) {
  ASSIGN_OR_RETURN(cuda::DeviceInfo device, cuda::FindDevice(options.device));
  ASSIGN_OR_RETURN(cuda::Stream* const stream, cuda::MakeStream(options.device));
  Streams streams = {.ops = StreamOwner(stream)};
  ASSIGN_OR_RETURN(streams.staging, cuda::StagingRing::Create(options.device, stream));
  ASSIGN_OR_RETURN(streams.copies, cuda::CopyLane::Create(options.device, stream));
  return std::make_unique<CudaBackend>(options, std::move(device), std::move(streams));
}

}  // namespace tidepool::kernels
