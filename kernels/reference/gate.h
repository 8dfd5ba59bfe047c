// Reference implementation of Gate. Only for kernels/reference.
#ifndef TIDEPOOL_KERNELS_REFERENCE_GATE_H_
#define TIDEPOOL_KERNELS_REFERENCE_GATE_H_

#include <cstdint>

#include "kernels/backend.h"

namespace tidepool::kernels {

// Chooses the experts of one row: reads logits [spec.experts], and writes ids and weights, each
// [spec.top_k].
void ReferenceGate(const float* logits, const GateSpec& spec, int32_t* ids, float* weights);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_REFERENCE_GATE_H_
