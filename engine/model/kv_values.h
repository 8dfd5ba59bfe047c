// Checks that keys and values can be stored. If a KV type turned a number into an infinity, all
// later requests with the same prefix would fail.
#ifndef TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_
#define TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// INTERNAL names the layer, the first number of k or v that KV of `dtype` cannot represent, and the
// remedy. The number is NaN, infinite, or too large. k and v are [rows, kv_heads * head_dim],
// before they are stored.
absl::Status CheckKvValues(int layer, kernels::DType dtype, kernels::ConstMatrixView k,
                           kernels::ConstMatrixView v);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_
