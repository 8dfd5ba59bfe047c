// ScanRow: one row of KernelBackend::ScanRows.
#ifndef TIDEPOOL_KERNELS_CPU_ROW_SCAN_H_
#define TIDEPOOL_KERNELS_CPU_ROW_SCAN_H_

#include "absl/types/span.h"
#include "kernels/backend.h"

namespace tidepool::kernels {

RowScan ScanRow(absl::Span<const float> row, float limit);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CPU_ROW_SCAN_H_
