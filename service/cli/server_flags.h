// Setters of the flags for server addresses and session stores. Each function sets the flag's
// value, or returns why the value is invalid. The message never contains a password.
#ifndef TIDEPOOL_SERVICE_CLI_SERVER_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_SERVER_FLAGS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "service/cli/config.h"

namespace tidepool::service {

absl::Status SetHttp(absl::string_view value, Config* config);
absl::Status AddWorker(absl::string_view value, Config* config);
absl::Status AddWorkerName(absl::string_view value, Config* config);
absl::Status SetStallTimeout(absl::string_view value, Config* config);

absl::Status SetStore(absl::string_view value, Config* config);
absl::Status SetDurability(absl::string_view value, Config* config);
absl::Status SetSessionTtl(absl::string_view value, Config* config);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_SERVER_FLAGS_H_
