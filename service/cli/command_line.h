// Splits the arguments of one command into flags and their values.
//
//  --name VALUE, --name=VALUE, -n VALUE, -nVALUE; a switch: --name, --name=false, -n
//  --        ends the flags
//  WORD      a value of a positional flag
//
// The argument after a flag that takes a value is always its value, even if it begins with "-".
#ifndef TIDEPOOL_SERVICE_CLI_COMMAND_LINE_H_
#define TIDEPOOL_SERVICE_CLI_COMMAND_LINE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "service/cli/config.h"
#include "service/cli/flags.h"

namespace tidepool::service {

// Returns null if the command has no flag of this name.
const FlagSpec* FindFlag(Command command, absl::string_view name);

// Returns the error for a name that is not a flag of `command`, with the nearest valid name.
// `prefix` is "--" on a command line and "" in a file. UNIMPLEMENTED for names in FutureFlags().
absl::Status UnknownFlag(Command command, absl::string_view name, absl::string_view prefix);

// `args` are the arguments after the command's name. The values are not checked. If --help is among
// `args`, unknown arguments and all arguments after --help are accepted.
absl::StatusOr<FlagValues> ReadCommandLine(Command command, absl::Span<const std::string> args);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_COMMAND_LINE_H_
