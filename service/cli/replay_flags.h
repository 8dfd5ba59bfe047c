// Setters of replay's flags.
#ifndef TIDEPOOL_SERVICE_CLI_REPLAY_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_REPLAY_FLAGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "service/cli/config.h"

namespace tidepool::service {

// Parses "192", "25%" or a list of these, and adds the values.
absl::Status AddReplaySlots(absl::string_view value, Config* config);
// Parses a list such as "tide,lru" and adds it. The command checks the names.
absl::Status AddReplayPolicies(absl::string_view value, Config* config);
// Parses bytes per second, such as "1.5GB".
absl::Status SetReplayReadBandwidth(absl::string_view value, Config* config);
absl::Status SetReplayMemoryBandwidth(absl::string_view value, Config* config);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_REPLAY_FLAGS_H_
