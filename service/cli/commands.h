// The commands of the binary, one function each. A status with kInvalidArgument, kNotFound and the
// like (ExitCode) says that the command line or a file it names is wrong; others that the work
// failed.
#ifndef TIDEPOOL_SERVICE_CLI_COMMANDS_H_
#define TIDEPOOL_SERVICE_CLI_COMMANDS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/cli/config.h"
#include "service/cli/console.h"

namespace tidepool::service {

// Requires: config.command is the one named. `console` outlives the call.
absl::Status RunTokenize(const Config& config, Console* console);
absl::Status RunDetokenize(const Config& config, Console* console);
absl::Status RunInspect(const Config& config, Console* console);
absl::Status RunBench(const Config& config, Console* console);
// bench with a server.
absl::Status RunServerBench(const Config& config, Console* console);
absl::Status RunPack(const Config& config, Console* console);
absl::Status RunQuantize(const Config& config, Console* console);
absl::Status RunPerplexity(const Config& config, Console* console);
absl::Status RunReplay(const Config& config, Console* console);
absl::Status RunLogits(const Config& config, Console* console);
// What the command line and its --config file say now.
using ConfigReader = std::function<absl::StatusOr<ParsedConfig>()>;
// serve, front and worker; returns after SIGTERM or SIGINT, when everything has ended. On SIGHUP
// takes what `read` gives of what may change.
absl::Status RunServing(ParsedConfig parsed, const ConfigReader& read, Console* console);
absl::Status RunGenerate(const Config& config, Console* console);
absl::Status RunChat(const Config& config, Console* console);
absl::Status RunSessions(const Config& config, Console* console);
absl::Status RunStats(const Config& config, Console* console);
absl::Status RunOffload(const Config& config, Console* console);
absl::Status RunToken(const Config& config, Console* console);

// 0 done, 1 the work failed, 2 the command line or the input file is wrong.
int ExitCode(const absl::Status& status);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_COMMANDS_H_
