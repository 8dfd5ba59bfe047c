#include "engine/model/row_checks.h"

#include <limits>
#include <utility>

#include "engine/model/hidden_values.h"
#include "engine/model/kv_values.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace tidepool::engine {

using kernels::ConstMatrixView;
using kernels::RowScan;

void RowChecks::Begin(kernels::KernelBackend* backend, const Limits& limits, CheckTime time,
                      kernels::Arena* arena) {
  backend_ = backend;
  on_host_ = backend->memory()->on_host();
  at_once_ = on_host_ || time == CheckTime::kAtOnce;
  // The size does not depend on `time`, because dry runs do not know it.
  capacity_ = limits.rows * limits.waiting;
  table_ = arena->Allocate<RowScan>(capacity_);
  used_ = 0;
  pending_.clear();
  zero_since_.resize(limits.rows);
}

absl::Status RowChecks::Hidden(int layer, ConstMatrixView x) {
  return Scan({.what = What::kHidden, .layer = layer}, x, std::numeric_limits<float>::infinity());
}

absl::Status RowChecks::Kv(int layer, kernels::DType dtype, ConstMatrixView k, ConstMatrixView v) {
  RETURN_IF_ERROR(Scan({What::kKey, layer, dtype}, k, KvLimit(dtype)));
  if (v.cols == 0) return absl::OkStatus();
  return Scan({What::kValue, layer, dtype}, v, KvLimit(dtype));
}

absl::Status RowChecks::Scan(const Check& check, ConstMatrixView x, float limit) {
  CHECK_LE(used_ + x.rows, capacity_);
  RowScan* const out = table_ + used_;
  backend_->ScanRows(x, limit, out);
  if (on_host_) return Evaluate(check, absl::MakeConstSpan(out, x.rows));
  used_ += x.rows;
  pending_.push_back({check, x.rows});
  return at_once_ ? Finish() : absl::OkStatus();
}

absl::Status RowChecks::Finish() {
  if (pending_.empty()) return absl::OkStatus();
  copy_.resize(used_);
  used_ = 0;
  const std::vector<Pending> pending = std::exchange(pending_, {});
  RETURN_IF_ERROR(backend_->CopyOut(
      reinterpret_cast<const std::byte*>(table_),
      {reinterpret_cast<std::byte*>(copy_.data()), copy_.size() * sizeof(RowScan)}));
  absl::Span<const RowScan> scans = copy_;
  for (const Pending& one : pending) {
    RETURN_IF_ERROR(Evaluate(one.check, scans.first(one.rows)));
    scans.remove_prefix(one.rows);
  }
  return absl::OkStatus();
}

absl::Status RowChecks::Evaluate(const Check& check, absl::Span<const RowScan> scans) {
  switch (check.what) {
    case What::kHidden:
      return CheckHiddenValues(check.layer, scans, absl::MakeSpan(zero_since_));
    case What::kKey:
      return CheckKvValues(check.layer, "key", check.dtype, scans);
    case What::kValue:
      return CheckKvValues(check.layer, "value", check.dtype, scans);
  }
  return absl::OkStatus();
}

}  // namespace tidepool::engine
