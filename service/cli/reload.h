// What of a server's configuration may change while it runs, as SIGHUP asks for.
#ifndef TIDEPOOL_SERVICE_CLI_RELOAD_H_
#define TIDEPOOL_SERVICE_CLI_RELOAD_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "service/cli/config.h"

namespace tidepool::service {

// Names of flags, in alphabetical order.
struct ConfigChanges {
  std::vector<std::string> taken;
  std::vector<std::string> left;  // they change with the next start alone
};

// Gives `running` those values of `read` that may change. docs/operations.md lists the flags.
ConfigChanges TakeChanges(const ParsedConfig& read, ParsedConfig* running);

// Whether a flag of this name may change.
bool MayChange(absl::string_view flag);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_RELOAD_H_
