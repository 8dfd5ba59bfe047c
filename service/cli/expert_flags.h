// Setters of the flags that say how experts are kept. Each makes the flag's value, or gives the
// reason why it is none.
#ifndef TIDEPOOL_SERVICE_CLI_EXPERT_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_EXPERT_FLAGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "service/cli/config.h"

namespace tidepool::service {

absl::Status SetExpertMemory(absl::string_view value, Config* config);
absl::Status SetReserveMemory(absl::string_view value, Config* config);
absl::Status SetOffloadPolicy(absl::string_view value, Config* config);
absl::Status SetRefreshInterval(absl::string_view value, Config* config);
absl::Status SetPrefetch(absl::string_view value, Config* config);
absl::Status SetExpertReader(absl::string_view value, Config* config);

// Of what offload changes.
absl::Status ChangeExpertMemory(absl::string_view value, Config* config);
absl::Status ChangeOffloadPolicy(absl::string_view value, Config* config);
absl::Status ChangeRefreshInterval(absl::string_view value, Config* config);
absl::Status ChangePrefetch(absl::string_view value, Config* config);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_EXPERT_FLAGS_H_
