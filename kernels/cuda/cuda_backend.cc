#include "kernels/cuda/cuda_backend.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/staging.h"
#include "kernels/math.h"
#include "kernels/ops.h"

namespace tidepool::kernels {
namespace {

// Remove a name here when the op's file is there, and call the op's function below.
constexpr absl::string_view kMissing[] = {
    "Zero",        "GatherRows", "CopyHeads",  "ScanRows",   "Embed",
    "Quantize",    "QuantizeInTwo", "Norm",    "HeadNorm",   "MatMul",
    "MatMulHead",  "MatMulHeads", "MatMulGlu", "Rope",       "StoreKv",
    "Attend",      "CausalConv", "DeltaNet",   "GatedNorm",  "Gate",
    "GroupedFfn",  "CombineExperts", "AccumulateExpert", "AddScaled", "Scale", "AddGated",
};

[[noreturn]] void DieMissing(absl::string_view op) {
  CHECK(false) << "UNIMPLEMENTED: the CUDA backend has no " << std::string(op);
  abort();
}

class DeviceMemory final : public Memory {
 public:
  explicit DeviceMemory(int device) : device_(device) {}
  std::byte* Allocate(size_t bytes) override { return cuda::AllocateDevice(device_, bytes); }
  void Free(std::byte* data) override { cuda::FreeDevice(device_, data); }
  bool on_host() const override { return false; }

 private:
  int device_;
};

struct DeleteStream {
  void operator()(cuda::Stream* stream) const { cuda::DeleteStream(stream); }
};
using StreamOwner = std::unique_ptr<cuda::Stream, DeleteStream>;

// Large because each op is a method.
class CudaBackend final : public KernelBackend {
 public:
  CudaBackend(const CudaOptions& options, cuda::DeviceInfo device, StreamOwner stream,
              std::unique_ptr<cuda::StagingRing> staging)
      : memory_(options.device),
        stream_(std::move(stream)),
        staging_(std::move(staging)),
        context_{stream_.get(), staging_.get(), options.precision, std::move(device)} {}

  std::string Description() const override { return absl::StrCat("cuda ", context_.device.name); }
  Precision precision() const override { return context_.precision; }
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
  absl::Status Sync() override { return cuda::Synchronize(stream_.get()); }

  void Zero(MatrixView) override { DieMissing("Zero"); }
  void GatherRows(ConstMatrixView, absl::Span<const int64_t>, MatrixView) override {
    DieMissing("GatherRows");
  }
  void CopyHeads(const HeadCopy&, ConstMatrixView, MatrixView) override { DieMissing("CopyHeads"); }
  void ScanRows(ConstMatrixView, float, RowScan*) override { DieMissing("ScanRows"); }
  void Embed(const PackedMatrix&, absl::Span<const int32_t>, MatrixView) override {
    DieMissing("Embed");
  }
  Activation Quantize(ConstMatrixView, Arena*) override { DieMissing("Quantize"); }
  Activation QuantizeInTwo(const Activation&, Arena*) override { DieMissing("QuantizeInTwo"); }
  Activation Norm(ConstMatrixView, absl::Span<const float>, float, Arena*) override {
    DieMissing("Norm");
  }
  void HeadNorm(MatrixView, absl::Span<const float>, float) override { DieMissing("HeadNorm"); }
  void MatMul(const Activation&, absl::Span<const MatMulTarget>) override { DieMissing("MatMul"); }
  void MatMulHead(const Activation&, const HeadTarget&, Arena*) override {
    DieMissing("MatMulHead");
  }
  void MatMulHeads(const Activation&, absl::Span<const PackedMatrix>, MatrixView) override {
    DieMissing("MatMulHeads");
  }
  Activation MatMulGlu(const Activation&, const FfnWeights&, Arena*) override {
    DieMissing("MatMulGlu");
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

  void Rope(MatrixView, int, RopeStyle, ConstMatrixView, ConstMatrixView) override {
    DieMissing("Rope");
  }
  void StoreKv(ConstMatrixView, ConstMatrixView, const KvLayer&,
               absl::Span<const KvSpan>) override {
    DieMissing("StoreKv");
  }
  Activation Attend(const AttendCall&, Arena*) override { DieMissing("Attend"); }
  void CausalConv(const CausalConvCall&) override { DieMissing("CausalConv"); }
  void DeltaNet(const DeltaNetCall&) override { DieMissing("DeltaNet"); }
  Activation GatedNorm(ConstMatrixView, ConstMatrixView, absl::Span<const float>, float,
                       Arena*) override {
    DieMissing("GatedNorm");
  }
  void Gate(ConstMatrixView, const GateSpec&, int32_t*, float*) override { DieMissing("Gate"); }
  void GroupedFfn(const Activation&, absl::Span<const ExpertGroup>, MatrixView, Arena*) override {
    DieMissing("GroupedFfn");
  }
  void CombineExperts(ConstMatrixView, int, const int32_t*, const float*, MatrixView) override {
    DieMissing("CombineExperts");
  }
  void AccumulateExpert(ConstMatrixView, const ExpertTerms&, MatrixView) override {
    DieMissing("AccumulateExpert");
  }

  void Add(ConstMatrixView x, MatrixView out) override {
    CHECK(x.rows == out.rows && x.cols == out.cols);
    cuda::AddRows(context_, x, out);
  }

  void AddScaled(ConstMatrixView, float, MatrixView) override { DieMissing("AddScaled"); }
  void Scale(MatrixView, float) override { DieMissing("Scale"); }
  void AddGated(ConstMatrixView, absl::Span<const float>, MatrixView) override {
    DieMissing("AddGated");
  }

 private:
  void CopyFloats(const std::vector<float>& from, float* to) {
    CopyIn({reinterpret_cast<const std::byte*>(from.data()), from.size() * sizeof(float)},
           reinterpret_cast<std::byte*>(to));
  }

  DeviceMemory memory_;
  StreamOwner stream_;
  std::unique_ptr<cuda::StagingRing> staging_;
  cuda::CudaContext context_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<KernelBackend>> MakeCudaBackend(const CudaOptions& options) {
  ASSIGN_OR_RETURN(cuda::DeviceInfo device, cuda::FindDevice(options.device));
  ASSIGN_OR_RETURN(cuda::Stream* const stream, cuda::MakeStream(options.device));
  StreamOwner owner(stream);
  ASSIGN_OR_RETURN(auto staging, cuda::StagingRing::Create(options.device, stream));
  return std::make_unique<CudaBackend>(options, std::move(device), std::move(owner),
                                       std::move(staging));
}

absl::Span<const absl::string_view> OpsWithoutCuda() { return kMissing; }

}  // namespace tidepool::kernels
