// HostBackend: the common part of backends whose ops run on the host and are complete when they
// return.
#ifndef TIDEPOOL_KERNELS_HOST_BACKEND_H_
#define TIDEPOOL_KERNELS_HOST_BACKEND_H_

#include <algorithm>
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/base/check.h"
#include "kernels/base/clock.h"
#include "kernels/ops.h"

namespace tidepool::kernels {

// Thread-compatible. Large because each op is a method.
class HostBackend : public KernelBackend {
 public:
  void CopyIn(absl::Span<const std::byte> from, std::byte* to) final {
    std::copy(from.begin(), from.end(), to);
  }
  absl::Status CopyOut(const std::byte* from, absl::Span<std::byte> to) final {
    std::copy_n(from, to.size(), to.begin());
    return absl::OkStatus();
  }
  void CopyWithin(const std::byte* from, std::byte* to, size_t bytes) final {
    std::copy_n(from, bytes, to);
  }
  absl::Status Sync() final { return absl::OkStatus(); }

  // Copies read any host memory, and end before BeginCopyIn returns.
  absl::Status PinHost(absl::Span<std::byte>) final { return absl::OkStatus(); }
  void UnpinHost(absl::Span<std::byte>) final {}
  OpMark MarkOps() final { return 0; }
  CopyTicket BeginCopyIn(absl::Span<const std::byte> from, std::byte* to, OpMark) final {
    const base::Clock& clock = base::Clock::Real();
    const absl::Duration begin = clock.Monotonic();
    CopyIn(from, to);
    copy_times_.emplace(++copies_, clock.Monotonic() - begin);
    return copies_;
  }
  void AwaitCopy(CopyTicket copy) final { CHECK(copy > 0 && copy <= copies_) << "copy " << copy; }
  absl::StatusOr<std::optional<absl::Duration>> CopyTime(CopyTicket copy) final {
    const auto found = copy_times_.find(copy);
    CHECK(found != copy_times_.end()) << "copy " << copy << " was not begun, or its time was read";
    const absl::Duration time = found->second;
    copy_times_.erase(found);
    return time;
  }

  void Zero(MatrixView out) final {
    for (int64_t i = 0; i < out.rows; ++i) std::fill_n(out.Row(i), out.cols, 0.0f);
  }
  void GatherRows(ConstMatrixView x, absl::Span<const int64_t> rows, MatrixView out) final {
    CheckGatherRows(x, rows, out);
    for (int64_t i = 0; i < out.rows; ++i) std::copy_n(x.Row(rows[i]), x.cols, out.Row(i));
  }
  void CopyHeads(const HeadCopy& copy, ConstMatrixView from, MatrixView to) final {
    CheckCopyHeads(copy, from, to);
    for (int64_t i = 0; i < from.rows; ++i) {
      const float* source = from.Row(i) + copy.from_first;
      float* target = to.Row(i) + copy.to_first;
      for (int64_t h = 0; h < copy.heads; ++h) {
        std::copy_n(source + h * copy.from_dim, copy.cols, target + h * copy.to_dim);
      }
    }
  }

 private:
  CopyTicket copies_ = 0;                            // number of copies that were begun
  std::map<CopyTicket, absl::Duration> copy_times_;  // times that CopyTime has not returned yet
};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_HOST_BACKEND_H_
