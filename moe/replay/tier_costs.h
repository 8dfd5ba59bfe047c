// TierCosts: what the parts of a forward pass cost on a machine with a device. It is the input of
// SimulateTier. A costs file is one JSON object. It must have every field below with its unit:
//
//   {"about": "one H200",            any text; may be left out
//    "expert_bytes": 2654208,        bytes of one expert, to which all other fields refer
//    "device_step_us": 120,          the device's time for a forward pass outside of its layers
//    "device_layer_us": 180,         the device's time for a layer without its routed experts
//    "device_call_us": 24,           the device's time to start a group of experts
//    "device_expert_us": 5.3,        and for each expert of the group
//    "device_expert_row_us": 0,      and for each row of each of these experts
//    "copy_latency_us": 10,          the time of a copy of 0 bytes
//    "copy_bytes_per_s": 50e9,       the bandwidth of copies from the host's memory to the device
//    "cpu_call_us": 20,              the CPU's time to start a group of experts
//    "cpu_expert_us": 40,            and for each expert of the group
//    "cpu_expert_row_us": 10}        and for each row of each of these experts
#ifndef TIDEPOOL_MOE_REPLAY_TIER_COSTS_H_
#define TIDEPOOL_MOE_REPLAY_TIER_COSTS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace tidepool::moe {

struct TierCosts {
  int64_t expert_bytes = 0;
  double device_step_us = 0;
  double device_layer_us = 0;
  double device_call_us = 0;
  double device_expert_us = 0;
  double device_expert_row_us = 0;
  double copy_latency_us = 0;
  double copy_bytes_per_s = 0;
  double cpu_call_us = 0;
  double cpu_expert_us = 0;
  double cpu_expert_row_us = 0;
};

// Parses a costs file. `name` is used as the file's name in errors. Returns INVALID_ARGUMENT if the
// text is not JSON, or if a field is missing, unknown or out of range: times may be 0 to 1e9 us,
// expert_bytes 1 to 1e12, and the bandwidth 1 to 1e15.
absl::StatusOr<TierCosts> ParseTierCosts(const std::string& name, absl::string_view text);

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_REPLAY_TIER_COSTS_H_
