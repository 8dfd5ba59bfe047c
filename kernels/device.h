// What a backend can run on.
#ifndef TIDEPOOL_KERNELS_DEVICE_H_
#define TIDEPOOL_KERNELS_DEVICE_H_

#include <cstdint>

namespace tidepool::kernels {

enum class Device : uint8_t { kCpu, kCuda };

// Instruction sets of CPUs that have their own kernels. Each one includes the ones before it. kBest
// means the fastest one that this machine supports.
enum class Isa : uint8_t { kPortable, kAvx2, kAvx512, kAvx512Vnni, kBest };

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_KERNELS_DEVICE_H_
