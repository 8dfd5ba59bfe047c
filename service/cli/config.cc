#include "service/cli/config.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"
#include "service/base/version.h"
#include "service/cli/command_line.h"
#include "service/cli/config_file.h"
#include "service/cli/console.h"
#include "service/cli/flags.h"
#include "service/cli/help.h"
#include "service/cli/security_flags.h"
#include "service/cli/traffic_flags.h"

namespace tidepool::service {
namespace {

bool Contains(absl::Span<const absl::string_view> names, absl::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

absl::Status UnknownCommand(absl::string_view name) {
  if (Contains(FutureCommands(), name)) {
    return absl::UnimplementedError(absl::StrCat("command ", name, " is not available yet"));
  }
  std::vector<std::string> candidates;
  for (const CommandSpec& spec : Commands()) candidates.emplace_back(spec.name);
  return absl::InvalidArgumentError(absl::StrCat("unknown command ", ShownName(name),
                                                 NearestNameHint(name, candidates, ""),
                                                 "; tidepool --help lists them"));
}

absl::Status ApplyValues(const FlagSpec& flag, const std::vector<std::string>& values,
                         Config* config) {
  for (const std::string& value : values) RETURN_IF_ERROR(flag.apply(value, config));
  return absl::OkStatus();
}

absl::Status Annotate(const absl::Status& status, absl::string_view where) {
  return status.ok() ? status
                     : absl::Status(status.code(), absl::StrCat(where, ": ", status.message()));
}

// Applies the file's flags that the command line does not set. Adds all of the file's flags to
// `given`.
absl::Status ApplyConfigFile(const std::string& path, const FlagValues& command_line,
                             Config* config, FlagValues* given) {
  ASSIGN_OR_RETURN(const std::vector<ConfigFileEntry> entries, ReadConfigFile(path));
  for (const ConfigFileEntry& entry : entries) {
    const std::string where = absl::StrCat(path, ": line ", entry.line);
    const FlagSpec* flag = FindFlag(config->command, entry.key);
    if (flag == nullptr || flag->apply == nullptr) {
      if (flag == nullptr) return Annotate(UnknownFlag(config->command, entry.key, ""), where);
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": ", entry.key, " cannot be set in a file"));
    }
    std::vector<std::string> values = entry.values;
    // The flag takes one list, for example tokens = [1, 2, 3].
    if (flag->kind == FlagKind::kValue && values.size() != 1) values = {absl::StrJoin(values, ",")};
    // Values in the file are checked even if the command line overrides them.
    Config unused = *config;
    const bool wins = command_line.count(entry.key) == 0;
    RETURN_IF_ERROR(Annotate(ApplyValues(*flag, values, wins ? config : &unused),
                             absl::StrCat(where, ": ", entry.key)));
    (*given)[entry.key] = values;
  }
  return absl::OkStatus();
}

absl::Status Need(bool condition, absl::string_view message) {
  return condition ? absl::OkStatus() : absl::InvalidArgumentError(message);
}

absl::Status ValidateServing(const Config& config) {
  if (config.command == Command::kFront) {
    RETURN_IF_ERROR(Need(!config.front.workers.empty() || !config.front.worker_names.empty(),
                         "--worker HOST:PORT is missing: a front needs at least one, or "
                         "--workers NAME:PORT"));
  }
  return ValidateServerSecurity(config);
}

// Refuses flags of a local model if --server is set.
absl::Status RefuseModelFlags(const Config& config, const FlagValues& given) {
  for (const auto& [name, texts] : given) {
    const absl::string_view group = FindFlag(config.command, name)->group;
    const bool of_model =
        group == "Model" || group == "Experts" || name == "batch" || name == "repetitions";
    RETURN_IF_ERROR(
        Need(!of_model, absl::StrCat("--", name, " has no effect on a server; leave out --", name,
                                     " or --server")));
  }
  return absl::OkStatus();
}

absl::Status ValidateTalking(const Config& config, const FlagValues& given) {
  RETURN_IF_ERROR(ValidateClientSecurity(config));
  if (!config.client.server.empty()) {
    RETURN_IF_ERROR(RefuseModelFlags(config, given));
  } else {
    RETURN_IF_ERROR(
        Need(!config.model.path.empty(),
             "--model FILE is missing (or --server HOST:PORT, to use a running server)"));
    RETURN_IF_ERROR(Need(config.client.session.empty(),
                         "--session needs --server, because only a server stores sessions"));
  }
  if (config.command == Command::kChat) return absl::OkStatus();
  const int inputs = int{config.input.prompt.has_value()} + int{config.input.chat.has_value()} +
                     int{config.input.file.has_value()} + int{!config.input.tokens.empty()};
  RETURN_IF_ERROR(Need(inputs == 1, "set exactly one of --prompt, --chat, --tokens, --file"));
  return Need(config.input.system.empty() || config.input.chat.has_value(),
              "--system needs --chat");
}

absl::Status ValidateBench(const Config& config, const FlagValues& given) {
  if (!config.client.server.empty()) {
    RETURN_IF_ERROR(ValidateClientSecurity(config));
    RETURN_IF_ERROR(RefuseModelFlags(config, given));
    return ValidateTraffic(config);
  }
  for (const auto& [name, texts] : given) {
    RETURN_IF_ERROR(Need(FindFlag(config.command, name)->group != kTrafficGroup,
                         absl::StrCat("--", name, " needs --server HOST:PORT")));
  }
  RETURN_IF_ERROR(
      Need(!config.model.path.empty(),
           "--model FILE is missing (or --server HOST:PORT, to measure a running server)"));
  const auto measures = [](const std::vector<int64_t>& sizes) {
    return sizes.empty() ||
           std::any_of(sizes.begin(), sizes.end(), [](int64_t n) { return n > 0; });
  };
  return Need(measures(config.bench.prompt_tokens) || measures(config.bench.output_tokens),
              "--prompt-tokens and --output-tokens are both 0: nothing to measure");
}

absl::Status ValidateReplay(const Config& config, const FlagValues& given) {
  RETURN_IF_ERROR(Need(!config.replay.trace.empty(), "--trace FILE is missing"));
  RETURN_IF_ERROR(Need(!config.replay.slots.empty(),
                       "--slots N is missing: a number of experts, or a percentage such as 25%"));
  if (config.replay.device_costs.empty()) return absl::OkStatus();
  for (const char* const name : {"read-bandwidth", "memory-bandwidth"}) {
    RETURN_IF_ERROR(Need(given.find(name) == given.end(),
                         absl::StrCat("--", name, " cannot be combined with --device-costs")));
  }
  return absl::OkStatus();
}

absl::Status ValidateQuantize(const Config& config) {
  RETURN_IF_ERROR(Need(!config.model.path.empty(), "the model to read is missing"));
  RETURN_IF_ERROR(Need(!config.output.file.empty(), "the file to write is missing"));
  return Need(!config.quantize.type.empty(), "--type TYPE is missing, as in --type Q4_K");
}

absl::Status ValidateGrammar(const Config& config) {
  const GrammarFlags& grammar = config.grammar;
  const int sources = int{!grammar.schema.empty()} + int{grammar.regex.has_value()} +
                      int{!grammar.grammar.empty()} + int{!grammar.batch.empty()};
  RETURN_IF_ERROR(
      Need(sources == 1, "set exactly one of --schema, --regex, --grammar and --batch"));
  return Need(grammar.batch.empty() || !config.input.text.has_value(),
              "--text has no effect with --batch; put the texts into the file");
}

absl::Status Validate(const Config& config, const FlagValues& given) {
  if (config.model.precision == kernels::Precision::kExact && config.model.kv_type.has_value()) {
    RETURN_IF_ERROR(Need(*config.model.kv_type == kernels::DType::kF32,
                         "--exact keeps KV in f32; leave out --kv-type or --exact"));
  }
  switch (config.command) {
    case Command::kServe:
    case Command::kWorker:
      RETURN_IF_ERROR(Need(!config.model.path.empty(), "--model FILE is missing"));
      return ValidateServing(config);
    case Command::kFront:
      return ValidateServing(config);
    case Command::kGenerate:
    case Command::kChat:
      return ValidateTalking(config, given);
    case Command::kLogits:
      RETURN_IF_ERROR(Need(!config.model.path.empty(), "--model FILE is missing"));
      RETURN_IF_ERROR(Need(!config.input.tokens.empty(), "--tokens IDS is missing"));
      return Need(!config.output.file.empty() || !config.logits.dump.empty(),
                  "--out FILE or --dump DIR is missing");
    case Command::kTokenize:
      RETURN_IF_ERROR(Need(!config.model.path.empty(), "--model FILE is missing"));
      return Need(!config.input.text.has_value() || !config.input.file.has_value(),
                  "set --text or --file, not both");
    case Command::kDetokenize:
      RETURN_IF_ERROR(Need(!config.model.path.empty(), "--model FILE is missing"));
      return Need(!config.input.tokens.empty(), "--tokens IDS is missing");
    case Command::kBench:
      return ValidateBench(config, given);
    case Command::kQuantize:
      return ValidateQuantize(config);
    case Command::kPerplexity:
      RETURN_IF_ERROR(Need(!config.model.path.empty(), "--model FILE is missing"));
      return Need(config.input.file.has_value(), "--file FILE is missing: the text to score");
    case Command::kReplay:
      return ValidateReplay(config, given);
    case Command::kInspect:
    case Command::kPack:
      return Need(!config.model.path.empty(), "--model FILE is missing");
    case Command::kSessions:
      return Need(config.input.action == "export" || config.input.action == "import" ||
                      config.input.action == "verify",
                  "choose an action: tidepool sessions export, import or verify");
    case Command::kToken:
      RETURN_IF_ERROR(Need(config.input.action == "new", "choose an action: tidepool token new"));
      return Need(!config.token.caller.principal.empty(), "--principal NAME is missing");
    case Command::kGrammar:
      return ValidateGrammar(config);
    case Command::kStats:
      return ValidateClientSecurity(config);
    case Command::kOffload:
      RETURN_IF_ERROR(ValidateClientSecurity(config));
      return Need(!config.offload.refresh || !config.offload.changes(),
                  "--refresh cannot be combined with changes; use it alone");
  }
  return absl::OkStatus();
}

// Returns the folder "tidepool" in the folder that an XDG variable names. If the variable is not
// set, uses `fallback` under HOME. By the XDG rules, a relative path counts as not set.
absl::StatusOr<std::string> OurFolder(const Environment& environment, const std::string& variable,
                                      absl::string_view fallback, absl::string_view without_home) {
  if (!variable.empty() && variable[0] == '/') return absl::StrCat(variable, "/tidepool");
  RETURN_IF_ERROR(Need(!environment.home.empty(), without_home));
  return absl::StrCat(environment.home, "/", fallback, "/tidepool");
}

// Sets the defaults that depend on other fields or on the environment.
absl::Status FillDefaults(const Environment& environment, Config* config) {
  const bool operates = config->command == Command::kStats || config->command == Command::kOffload;
  if (operates && config->client.server.empty()) config->client.server = "127.0.0.1:50051";
  if (config->command == Command::kPerplexity && config->model.context == 0) {
    config->model.context = 512;
  }
  if (config->replay.policies.empty()) {
    config->replay.policies = {"adaptive", "tide", "lru", "static", "hindsight", "belady"};
  }
  BenchFlags& bench = config->bench;
  if (bench.prompt_tokens.empty()) bench.prompt_tokens = {512};
  if (bench.output_tokens.empty()) bench.output_tokens = {128};
  if (bench.batch_sizes.empty()) bench.batch_sizes = {1};
  const bool keeps_sessions = config->command == Command::kServe ||
                              config->command == Command::kFront ||
                              config->command == Command::kSessions;
  if (keeps_sessions) {
    const absl::StatusOr<std::string> folder =
        OurFolder(environment, environment.xdg_state_home, ".local/state",
                  "HOME is not set, so there is no default file for sessions; set --store FILE");
    StoreFlags& store = config->store;
    if (store.location.empty()) {
      RETURN_IF_ERROR(folder.status());
      store.location = absl::StrCat(*folder, "/sessions.db");
    }
    store.state_folder = folder.value_or("");
  }
  if (config->model.kv_disk_bytes > 0) {
    // Pack files are next to the model. KV files are not, because they contain data of users.
    config->model.kv_disk_folder = config->model.experts.cache_dir;
    if (config->model.kv_disk_folder.empty()) {
      ASSIGN_OR_RETURN(
          config->model.kv_disk_folder,
          OurFolder(environment, environment.xdg_cache_home, ".cache",
                    "HOME is not set, so there is no default folder for KV; set --cache-dir DIR"));
    }
  }
  return absl::OkStatus();
}

ParsedConfig Print(std::string text) {
  ParsedConfig parsed;
  parsed.print = std::move(text);
  return parsed;
}

absl::StatusOr<ParsedConfig> Parse(absl::Span<const std::string> args,
                                   const Environment& environment) {
  RETURN_IF_ERROR(Need(!args.empty(), "a command is missing; tidepool --help lists them"));
  if (args[0] == "--version") return Print(absl::StrCat("tidepool ", kVersion, "\n"));
  if (args[0] == "--help" || args[0] == "-h" || args[0] == "help") return Print(GeneralHelp());

  const CommandSpec* spec = nullptr;
  for (const CommandSpec& candidate : Commands()) {
    if (candidate.name == args[0]) spec = &candidate;
  }
  if (spec == nullptr) return UnknownCommand(args[0]);
  ParsedConfig parsed;
  Config& config = parsed.config;
  config.command = spec->command;

  ASSIGN_OR_RETURN(const FlagValues values, ReadCommandLine(spec->command, args.subspan(1)));
  if (values.count("help") > 0) return Print(CommandHelp(spec->command));
  FlagValues& given = parsed.values;
  if (const auto file = values.find("config"); file != values.end()) {
    parsed.file = file->second.front();
    RETURN_IF_ERROR(ApplyConfigFile(parsed.file, values, &config, &given));
  }
  for (const auto& [name, texts] : values) {
    const FlagSpec* flag = FindFlag(config.command, name);
    if (flag->apply == nullptr) continue;
    RETURN_IF_ERROR(Annotate(ApplyValues(*flag, texts, &config), absl::StrCat("--", name)));
    given[name] = texts;
  }
  RETURN_IF_ERROR(Validate(config, given));
  RETURN_IF_ERROR(FillDefaults(environment, &config));
  return parsed;
}

}  // namespace

absl::StatusOr<ParsedConfig> ParseConfig(absl::Span<const std::string> args,
                                         const Environment& environment) {
  absl::StatusOr<ParsedConfig> parsed = Parse(args, environment);
  if (parsed.ok()) return parsed;
  // The message may quote arguments and files, so remove control characters.
  return absl::Status(parsed.status().code(), OneLine(parsed.status().message()));
}

}  // namespace tidepool::service
