// The texts of --help.
#ifndef TIDEPOOL_SERVICE_CLI_HELP_H_
#define TIDEPOOL_SERVICE_CLI_HELP_H_

#include <string>

#include "service/cli/config.h"

namespace tidepool::service {

// `tidepool --help`.
std::string GeneralHelp();
// `tidepool COMMAND --help`.
std::string CommandHelp(Command command);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_HELP_H_
