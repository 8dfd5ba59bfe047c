// Whether keys and values can be kept: a number that a KV type turns into an infinity would make
// every later answer of the same prefix fail.
#ifndef TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_
#define TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_

#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/tensor.h"

namespace tidepool::engine {

// INTERNAL names the layer, the first number of k or v that KV of `dtype` cannot hold, and the
// remedy: it is NaN, infinite, or so large that it is stored as an infinity. k and v:
// [rows, kv_heads * head_dim], before they are stored.
absl::Status CheckKvValues(int layer, kernels::DType dtype, kernels::ConstMatrixView k,
                           kernels::ConstMatrixView v);

}  // namespace tidepool::engine

#endif  // TIDEPOOL_ENGINE_MODEL_KV_VALUES_H_
