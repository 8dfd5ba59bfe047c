// Reference implementations of CausalConv and DeltaNet. Only for kernels/reference.
#ifndef TIDEPOOL_KERNELS_REFERENCE_RECURRENT_H_
#define TIDEPOOL_KERNELS_REFERENCE_RECURRENT_H_

#include "kernels/recurrent.h"

namespace tidepool::kernels {

// The caller has checked the arguments of both functions.
void ReferenceCausalConv(const CausalConvCall& call);
void ReferenceDeltaNet(const DeltaNetCall& call);

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_REFERENCE_RECURRENT_H_
