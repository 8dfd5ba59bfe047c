// The commands of the binary, one function each. A status such as kInvalidArgument or kNotFound
// means that the command line or an input file is wrong (see ExitCode). Other errors mean that the
// work failed.
#ifndef TIDEPOOL_SERVICE_CLI_COMMANDS_H_
#define TIDEPOOL_SERVICE_CLI_COMMANDS_H_

#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "service/cli/config.h"
#include "service/cli/console.h"

namespace tidepool::service {

// Requires: config.command is the function's command. `console` outlives the call.
absl::Status RunTokenize(const Config& config, Console* console);
absl::Status RunDetokenize(const Config& config, Console* console);
absl::Status RunInspect(const Config& config, Console* console);
absl::Status RunBench(const Config& config, Console* console);
// Runs bench --server.
absl::Status RunServerBench(const Config& config, Console* console);
absl::Status RunPack(const Config& config, Console* console);
absl::Status RunQuantize(const Config& config, Console* console);
absl::Status RunPerplexity(const Config& config, Console* console);
absl::Status RunReplay(const Config& config, Console* console);
absl::Status RunLogits(const Config& config, Console* console);
// A function that reads the command line and the --config file again.
using ConfigReader = std::function<absl::StatusOr<ParsedConfig>()>;
// Runs serve, front and worker. Returns after SIGTERM or SIGINT, when the server has stopped. On
// SIGHUP, applies the reloadable flags that `read` returns.
absl::Status RunServing(ParsedConfig parsed, const ConfigReader& read, Console* console);
absl::Status RunGenerate(const Config& config, Console* console);
absl::Status RunChat(const Config& config, Console* console);
absl::Status RunSessions(const Config& config, Console* console);
absl::Status RunStats(const Config& config, Console* console);
absl::Status RunOffload(const Config& config, Console* console);
absl::Status RunGrammar(const Config& config, Console* console);
absl::Status RunToken(const Config& config, Console* console);

// Returns 0 for success, 1 if the work failed, 2 if the command line or an input file is wrong.
int ExitCode(const absl::Status& status);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_COMMANDS_H_
