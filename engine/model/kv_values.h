// Checks that keys and values can be stored. Otherwise a number could become infinite in the KV
// type, and all later requests with the same prefix would fail.
#ifndef TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_
#define TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// If KV of `dtype` cannot represent a number of k or v, returns INTERNAL with the layer, the first
// such number, and the remedy. Such a number is NaN, infinite, or too large. k and v are [rows,
// kv_heads * head_dim], before they are stored.
absl::Status CheckKvValues(int layer, kernels::DType dtype, kernels::ConstMatrixView k,
                           kernels::ConstMatrixView v);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_
