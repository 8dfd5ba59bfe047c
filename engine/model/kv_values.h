// Checks that keys and values can be stored. Otherwise a number could become infinite in the KV
// type, and all later requests with the same prefix would fail.
#ifndef TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_
#define TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// Returns the smallest magnitude that KV of `dtype` would store as infinity.
float KvLimit(kernels::DType dtype);

// Checks the keys or the values of a layer before they are stored. `what` is "key" or "value".
// `rows` is what ScanRows found in each row, with KvLimit(dtype) as the limit. If KV of `dtype`
// cannot represent a number, returns INTERNAL with the layer, the first such number, and the
// remedy. Such a number is NaN, infinite, or too large.
absl::Status CheckKvValues(int layer, absl::string_view what, kernels::DType dtype,
                           absl::Span<const kernels::RowScan> rows);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_
