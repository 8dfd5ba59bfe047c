#include "service/cli/log_flags.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "service/cli/flag_setters.h"

namespace tidepool::service {
namespace {

constexpr CommandSet kServing = Bit(Command::kServe) | Bit(Command::kFront) | Bit(Command::kWorker);
// The commands that can log prompts, because they receive the requests of clients.
constexpr CommandSet kFronts = Bit(Command::kServe) | Bit(Command::kFront);

absl::Status SetLogLevel(absl::string_view value, Config* config) {
  constexpr std::pair<absl::string_view, LogLevel> kLevels[] = {{"debug", LogLevel::kDebug},
                                                                {"info", LogLevel::kInfo},
                                                                {"warn", LogLevel::kWarn},
                                                                {"error", LogLevel::kError},
                                                                {"off", LogLevel::kOff}};
  for (const auto& [name, level] : kLevels) {
    if (value == name) {
      config->log.level = level;
      return absl::OkStatus();
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", value, "\" is not debug, info, warn, error or off"));
}

absl::Status SetLogFormat(absl::string_view value, Config* config) {
  if (value != "text" && value != "json") {
    return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is not text or json"));
  }
  config->log.format = value == "json" ? LogFormat::kJson : LogFormat::kText;
  return absl::OkStatus();
}

constexpr absl::string_view kGeneral = "General";
constexpr FlagSpec kFlags[] = {
    {"log-level", 0, kGeneral, "LEVEL", "info",
     "lowest level that is logged: debug, info, warn, error, off", kServing, FlagKind::kValue,
     SetLogLevel},
    {"log-format", 0, kGeneral, "FORMAT", "text", "log format: text, or json (one object per line)",
     kServing, FlagKind::kValue, SetLogFormat},
    {"log-prompts", 0, kGeneral, "", "off", "log the first 4 KiB of each prompt", kFronts,
     FlagKind::kSwitch,
     SetEither<PromptLogging::kNever, PromptLogging::kAlways, &Config::log, &LogFlags::prompts>},
};

}  // namespace

absl::Span<const FlagSpec> LogFlagSpecs() { return kFlags; }

}  // namespace tidepool::service
