// Applies the configuration changes that SIGHUP can make to a running server.
#ifndef TIDEPOOL_SERVICE_CLI_RELOAD_H_
#define TIDEPOOL_SERVICE_CLI_RELOAD_H_

#include <string>
#include <vector>

#include "service/cli/config.h"

namespace tidepool::service {

// Names of flags, in alphabetical order.
struct ConfigChanges {
  std::vector<std::string> taken;
  std::vector<std::string> left;  // changed flags that need a restart
};

// Copies the reloadable values of `read` to `running`. docs/operations.md lists these flags.
ConfigChanges TakeChanges(const ParsedConfig& read, ParsedConfig* running);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_RELOAD_H_
