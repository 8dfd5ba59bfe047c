// TimedBackend: a KernelBackend in virtual time, for tests of the times at which ops and copies
// run. It computes nothing: the caller says how long an op takes. Copies (BeginCopyIn) run one
// after the other, each after all ops before its mark.
#ifndef TIDEPOOL_TESTS_MOE_REPLAY_TIMED_BACKEND_H_
#define TIDEPOOL_TESTS_MOE_REPLAY_TIMED_BACKEND_H_

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/clock.h"

namespace tidepool::kernels {

// Thread-compatible. Large because each op is a method.
class TimedBackend final : public KernelBackend, public base::Clock {
 public:
  explicit TimedBackend(absl::Duration copy_time) : copy_time_(copy_time) {}

  // The time of the calling thread.
  absl::Duration Monotonic() const override { return now_; }
  absl::Time Now() const override { return absl::UnixEpoch() + now_; }
  void Advance(absl::Duration time) { now_ += time; }
  // Calls an op that takes this time.
  void RunOp(absl::Duration time) { device_free_ = std::max(device_free_, now_) + time; }

  // The time at which all copies that have begun will have ended.
  absl::Duration copies_end() const { return lane_free_; }

  std::string Description() const override { return "timed"; }
  Precision precision() const override { return Precision::kFast; }
  absl::Status Sync() override {
    now_ = std::max(now_, device_free_);
    return absl::OkStatus();
  }
  absl::Status PinHost(absl::Span<std::byte>) override { return absl::OkStatus(); }
  void UnpinHost(absl::Span<std::byte>) override {}
  OpMark MarkOps() override {
    marks_.push_back(device_free_);
    return static_cast<OpMark>(marks_.size()) - 1;
  }
  CopyTicket BeginCopyIn(absl::Span<const std::byte>, std::byte*, OpMark after) override {
    lane_free_ = std::max({lane_free_, now_, marks_[after]}) + copy_time_;
    ends_.push_back(lane_free_);
    return static_cast<CopyTicket>(ends_.size());
  }
  void AwaitCopy(CopyTicket copy) override { device_free_ = std::max(device_free_, EndOf(copy)); }
  absl::StatusOr<std::optional<absl::Duration>> CopyTime(CopyTicket copy) override {
    return EndOf(copy) <= now_ ? std::optional(copy_time_) : std::nullopt;
  }

  void CopyIn(absl::Span<const std::byte>, std::byte*) override {}
  absl::Status CopyOut(const std::byte*, absl::Span<std::byte>) override { return Sync(); }
  void CopyWithin(const std::byte*, std::byte*, size_t) override {}
  void Zero(MatrixView) override {}
  void GatherRows(ConstMatrixView, absl::Span<const int64_t>, MatrixView) override {}
  void CopyHeads(const HeadCopy&, ConstMatrixView, MatrixView) override {}
  void ScanRows(ConstMatrixView, float, RowScan*) override {}
  void Embed(const PackedMatrix&, absl::Span<const int32_t>, MatrixView) override {}
  Activation Quantize(ConstMatrixView, Arena*) override { return {}; }
  Activation QuantizeInTwo(const Activation&, Arena*) override { return {}; }
  Activation Norm(ConstMatrixView, absl::Span<const float>, float, Arena*) override { return {}; }
  void HeadNorm(MatrixView, absl::Span<const float>, float) override {}
  void MatMul(const Activation&, absl::Span<const MatMulTarget>) override {}
  void MatMulHead(const Activation&, const HeadTarget&, Arena*) override {}
  void MatMulHeads(const Activation&, absl::Span<const PackedMatrix>, MatrixView) override {}
  Activation MatMulGlu(const Activation&, const FfnWeights&, Arena*) override { return {}; }
  void RopeTable(absl::Span<const int64_t>, absl::Span<const double>, float, MatrixView,
                 MatrixView) override {}
  void Rope(MatrixView, int, RopeStyle, ConstMatrixView, ConstMatrixView) override {}
  void StoreKv(ConstMatrixView, ConstMatrixView, const KvLayer&,
               absl::Span<const KvSpan>) override {}
  Activation Attend(const AttendCall&, Arena*) override { return {}; }
  void CausalConv(const CausalConvCall&) override {}
  void DeltaNet(const DeltaNetCall&) override {}
  Activation GatedNorm(ConstMatrixView, ConstMatrixView, absl::Span<const float>, float,
                       Arena*) override {
    return {};
  }
  void Gate(ConstMatrixView, const GateSpec&, int32_t*, float*) override {}
  void GroupedFfn(const Activation&, absl::Span<const ExpertGroup>, MatrixView, Arena*) override {}
  void CombineExperts(ConstMatrixView, int, const int32_t*, const float*, MatrixView) override {}
  void AccumulateExpert(ConstMatrixView, const ExpertTerms&, MatrixView) override {}
  void Add(ConstMatrixView, MatrixView) override {}
  void AddScaled(ConstMatrixView, float, MatrixView) override {}
  void Scale(MatrixView, float) override {}
  void AddGated(ConstMatrixView, absl::Span<const float>, MatrixView) override {}

 private:
  absl::Duration EndOf(CopyTicket copy) const { return ends_[copy - 1]; }

  const absl::Duration copy_time_;
  absl::Duration now_;
  absl::Duration device_free_;
  absl::Duration lane_free_;
  std::vector<absl::Duration> ends_;          // of all copies
  std::vector<absl::Duration> marks_ = {{}};  // when the device has run the ops before each mark
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_MOE_REPLAY_TIMED_BACKEND_H_
