// Setters for the flags of expert offloading. Each sets the flag's value, or returns why the value
// is invalid.
#ifndef TIDEPOOL_SERVICE_CLI_EXPERT_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_EXPERT_FLAGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "service/cli/config.h"

namespace tidepool::service {

absl::Status SetExpertMemory(absl::string_view value, Config* config);
absl::Status SetHostExpertMemory(absl::string_view value, Config* config);
absl::Status SetReserveMemory(absl::string_view value, Config* config);
absl::Status SetOffloadPolicy(absl::string_view value, Config* config);
absl::Status SetRefreshInterval(absl::string_view value, Config* config);
absl::Status SetPrefetch(absl::string_view value, Config* config);
absl::Status SetExpertReader(absl::string_view value, Config* config);

// Setters for the flags of the offload command.
absl::Status ChangeExpertMemory(absl::string_view value, Config* config);
absl::Status ChangeOffloadPolicy(absl::string_view value, Config* config);
absl::Status ChangeRefreshInterval(absl::string_view value, Config* config);
absl::Status ChangePrefetch(absl::string_view value, Config* config);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_EXPERT_FLAGS_H_
