// Ids that nobody else has.
#ifndef TIDEPOOL_SERVICE_FRONT_DRAW_ID_H_
#define TIDEPOOL_SERVICE_FRONT_DRAW_ID_H_

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tidepool::service {

// `prefix` and 96 random bits in hex. Thread-safe.
inline std::string DrawId(absl::string_view prefix) {
  std::random_device device;
  return absl::StrCat(prefix, absl::Hex(device(), absl::kZeroPad8),
                      absl::Hex(device(), absl::kZeroPad8), absl::Hex(device(), absl::kZeroPad8));
}

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_FRONT_DRAW_ID_H_
