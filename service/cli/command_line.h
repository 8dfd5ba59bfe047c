// Splits the arguments of one command into flags and their values.
//
//   --name VALUE, --name=VALUE, -n VALUE, -nVALUE; a switch: --name, --name=false, -n
//   --        ends the flags
//   WORD      a value of the flags that the command also takes by position
//
// An argument that follows a flag with a value is that value, whatever it begins with.
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

// Null: the command has no such flag.
const FlagSpec* FindFlag(Command command, absl::string_view name);

// Why `name` is not a flag of `command`, with the nearest name that is one. `prefix` is "--" on a
// command line and "" in a file. UNIMPLEMENTED for FutureFlags().
absl::Status UnknownFlag(Command command, absl::string_view name, absl::string_view prefix);

// `args` are the arguments after the command's name. With --help among them, nothing that follows
// and no unknown argument is an error. The values themselves are not checked.
absl::StatusOr<FlagValues> ReadCommandLine(Command command, absl::Span<const std::string> args);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_COMMAND_LINE_H_
