// Computes the int8 form of activations (ops.h) with plain loops. Only for kernels/reference.
#ifndef TIDEPOOL_KERNELS_REFERENCE_INT8_FORM_H_
#define TIDEPOOL_KERNELS_REFERENCE_INT8_FORM_H_

#include <cstdint>

#include "kernels/ops.h"
#include "kernels/tensor.h"

namespace tidepool::kernels {

// Converts block `block` of a row, whose elements are x[0..32), and writes it to row `row` of
// `out`.
void QuantizeBlock(const float* x, int64_t block, const ActivationBuffer& out, int64_t row);

// Sets the int8 form of `values`, if `out` has one.
void QuantizeRows(ConstMatrixView values, const ActivationBuffer& out);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_REFERENCE_INT8_FORM_H_
