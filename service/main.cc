// The main function of the tidepool binary.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "service/cli/commands.h"
#include "service/cli/config.h"
#include "service/cli/console.h"

namespace tidepool::service {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status Run(const ParsedConfig& parsed, const ConfigReader& read, Console* console) {
  const Config& config = parsed.config;
  switch (config.command) {
    case Command::kServe:
    case Command::kFront:
    case Command::kWorker:
      return RunServing(parsed, read, console);
    case Command::kGenerate:
      return RunGenerate(config, console);
    case Command::kChat:
      return RunChat(config, console);
    case Command::kLogits:
      return RunLogits(config, console);
    case Command::kTokenize:
      return RunTokenize(config, console);
    case Command::kDetokenize:
      return RunDetokenize(config, console);
    case Command::kInspect:
      return RunInspect(config, console);
    case Command::kStats:
      return RunStats(config, console);
    case Command::kBench:
      return config.client.server.empty() ? RunBench(config, console)
                                          : RunServerBench(config, console);
    case Command::kQuantize:
      return RunQuantize(config, console);
    case Command::kPack:
      return RunPack(config, console);
    case Command::kPerplexity:
      return RunPerplexity(config, console);
    case Command::kOffload:
      return RunOffload(config, console);
    case Command::kSessions:
      return RunSessions(config, console);
    case Command::kReplay:
      return RunReplay(config, console);
    case Command::kGrammar:
      return RunGrammar(config, console);
    case Command::kToken:
      return RunToken(config, console);
  }
  return absl::InternalError("unknown command");
}

// Prints the error on one line, without control characters.
int Fail(const absl::Status& status, int code, Console* console) {
  console->Note(absl::StrCat("tidepool: ", OneLine(status.message()), "\n"));
  return code;
}

// The parent process may have closed stdin, stdout or stderr. Then the next file that we open would
// get the descriptor of the closed file, and would receive our output. So open /dev/null with each
// closed descriptor. Its mode makes reads or writes fail, as on a closed file.
void OccupyStandardFiles() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // open uses the lowest free number, which is `fd` here.
    (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

int Main(const std::vector<std::string>& args) {
  OccupyStandardFiles();
#ifdef NDEBUG
  // gRPC locks with Abseil's mutexes, and Debian builds Abseil without NDEBUG. In such a build,
  // each lock and unlock takes a process-wide lock, and searches the graph of all locks that are
  // held together. If the graph has a cycle, the process aborts. This check is only useful in debug
  // builds.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
  // If the reader of a pipe has closed it, our write must fail. Without this, a signal would end
  // the process.
  std::signal(SIGPIPE, SIG_IGN);
  // A write to a file that has reached its size limit must also fail, and not end the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // Disables gRPC's own log, which repeats what our log reports. Users can set the variable to
  // enable gRPC's log.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  Console console(STDOUT_FILENO, STDERR_FILENO);
  const Environment environment = {.home = Variable("HOME"),
                                   .xdg_state_home = Variable("XDG_STATE_HOME"),
                                   .xdg_cache_home = Variable("XDG_CACHE_HOME")};
  const ConfigReader read = [&] { return ParseConfig(args, environment); };
  const absl::StatusOr<ParsedConfig> parsed = read();
  if (!parsed.ok()) return Fail(parsed.status(), 2, &console);
  if (parsed->print.has_value()) {
    console.Print(*parsed->print);
    return console.out_status().ok() ? 0 : 1;
  }
  const absl::Status status = Run(*parsed, read, &console);
  return status.ok() ? 0 : Fail(status, ExitCode(status), &console);
}

}  // namespace
}  // namespace tidepool::service

int main(int argc, char** argv) {
  return tidepool::service::Main(std::vector<std::string>(argv + 1, argv + argc));
}
