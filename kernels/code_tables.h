// The values of the codes of four-bit types whose codes are not linear.
#ifndef TIDEPOOL_KERNELS_CODE_TABLES_H_
#define TIDEPOOL_KERNELS_CODE_TABLES_H_

#include <cstdint>

#include "kernels/host_device.h"

namespace tidepool::kernels {

// Values of the codes of IQ4_NL and IQ4_XS.
TIDEPOOL_TABLE constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                  1,    13,   25,  38,  53,  69,  89,  113};
// Values of E2M1, the four-bit float of MXFP4 and NVFP4. They are doubled to be integers, so the
// scales are halved.
TIDEPOOL_TABLE constexpr int8_t kE2M1Doubled[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                    0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_CODE_TABLES_H_
