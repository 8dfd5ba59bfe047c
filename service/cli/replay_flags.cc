#include "service/cli/replay_flags.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"

namespace tidepool::service {
namespace {

absl::Status SetBandwidth(absl::string_view value, double* bytes_per_s) {
  ASSIGN_OR_RETURN(const size_t bytes, ParseSize(value));
  if (bytes == 0)
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not greater than 0"));
  *bytes_per_s = static_cast<double>(bytes);
  return absl::OkStatus();
}

}  // namespace

absl::Status AddReplaySlots(absl::string_view value, Config* config) {
  for (absl::string_view item : absl::StrSplit(value, ',')) {
    ReplaySlots slots;
    if (absl::ConsumeSuffix(&item, "%")) {
      ASSIGN_OR_RETURN(slots.percent, ParseNumber(item, 0, 100));
    } else {
      ASSIGN_OR_RETURN(slots.count, ParseInteger(item, 1, int64_t{1} << 31));
    }
    config->replay.slots.push_back(slots);
  }
  return absl::OkStatus();
}

absl::Status AddReplayPolicies(absl::string_view value, Config* config) {
  for (const absl::string_view item : absl::StrSplit(value, ',')) {
    if (item.empty()) return absl::InvalidArgumentError("a policy has no name");
    config->replay.policies.emplace_back(item);
  }
  return absl::OkStatus();
}

absl::Status SetReplayReadBandwidth(absl::string_view value, Config* config) {
  return SetBandwidth(value, &config->replay.read_bytes_per_s);
}

absl::Status SetReplayMemoryBandwidth(absl::string_view value, Config* config) {
  return SetBandwidth(value, &config->replay.memory_bytes_per_s);
}

}  // namespace tidepool::service
