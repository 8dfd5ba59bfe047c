// RandomHex: random names that are unique.
#ifndef TIDEPOOL_KERNELS_BASE_RANDOM_HEX_H_
#define TIDEPOOL_KERNELS_BASE_RANDOM_HEX_H_

#include <cstddef>
#include <string>

namespace tidepool::base {

// With this number of digits, two random names are never equal in practice, even across processes.
inline constexpr size_t kUniqueHexDigits = 24;

// Returns lower-case hex digits from the system's random source. Thread-safe.
std::string RandomHex(size_t digits = kUniqueHexDigits);

}  // namespace tidepool::base

#endif  // TIDEPOOL_KERNELS_BASE_RANDOM_HEX_H_
