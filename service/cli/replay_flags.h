// Setters of replay's flags, for the table of flags.
#ifndef TIDEPOOL_SERVICE_CLI_REPLAY_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_REPLAY_FLAGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "service/cli/config.h"

namespace tidepool::service {

// "192", "25%", and lists of such; adds to the list.
absl::Status AddReplaySlots(absl::string_view value, Config* config);
// "tide,lru"; adds to the list. What is a policy, the command says.
absl::Status AddReplayPolicies(absl::string_view value, Config* config);
// "1.5GB", each second.
absl::Status SetReplayReadBandwidth(absl::string_view value, Config* config);
absl::Status SetReplayMemoryBandwidth(absl::string_view value, Config* config);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_REPLAY_FLAGS_H_
