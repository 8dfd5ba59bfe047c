// Which cases of the op table a device can run.
#ifndef TIDEPOOL_TESTS_KERNELS_CUDA_DEVICE_CASES_H_
#define TIDEPOOL_TESTS_KERNELS_CUDA_DEVICE_CASES_H_

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "kernels/cuda/cuda_backend.h"

namespace tidepool::kernels {

// Cases are named after their op, except for those of attention, which begin with the KV's type.
inline bool HasAllOps(const std::string& name) {
  for (const absl::string_view op : OpsWithoutCuda()) {
    if (absl::StartsWith(name, op)) return false;
    const bool attention = op == "Attend" && absl::StrContains(name, "/");
    if (attention && !absl::StrContains(name, "DeltaNet")) return false;
  }
  return true;
}

}  // namespace tidepool::kernels

#endif  // TIDEPOOL_TESTS_KERNELS_CUDA_DEVICE_CASES_H_
