#include "kernels/base/random_hex.h"

#include <random>

#include "absl/strings/str_cat.h"

namespace tidepool::base {

std::string RandomHex(size_t digits) {
  // Creating a random_device executes CPUID, which is slow in a virtual machine. So each thread
  // creates only one.
  thread_local std::random_device device;
  std::string drawn;
  while (drawn.size() < digits) absl::StrAppend(&drawn, absl::Hex(device(), absl::kZeroPad8));
  drawn.resize(digits);
  return drawn;
}

}  // namespace tidepool::base
