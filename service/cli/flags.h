// The tables of all flags and commands. They define the texts of --help, the keys of a --config
// file, and how a value is stored in the Config.
#ifndef TIDEPOOL_SERVICE_CLI_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_FLAGS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "service/cli/config.h"

namespace tidepool::service {

// Bit i stands for the command with enum value i.
using CommandSet = uint32_t;
constexpr CommandSet Bit(Command command) { return CommandSet{1} << static_cast<int>(command); }

struct CommandSpec {
  Command command;
  absl::string_view name;
  absl::string_view summary;  // one line
  absl::string_view details;  // text that --help shows below the summary
  absl::string_view example;
  // Flags whose values may be given without the flag's name, in this order.
  absl::Span<const absl::string_view> positionals = {};
};

enum class FlagKind : uint8_t {
  kSwitch,   // takes no value, or true or false
  kValue,    // may be given once
  kRepeats,  // may be given any number of times
};

struct FlagSpec {
  absl::string_view name;
  char letter;  // 0: the flag has no short form
  absl::string_view group;
  absl::string_view metavar;
  absl::string_view fallback;  // the default as --help shows it; empty: --help shows no default
  absl::string_view help;
  CommandSet commands;
  FlagKind kind;
  absl::Status (*apply)(absl::string_view value, Config* config);

  bool IsOf(Command c) const { return (commands & Bit(c)) != 0; }
};

absl::Span<const CommandSpec> Commands();
const CommandSpec& SpecOf(Command command);

// All flags in the order of --help. The flags of a group follow each other.
absl::Span<const FlagSpec> Flags();

// Names of flags and commands that are reserved for a later version.
absl::Span<const absl::string_view> FutureFlags();
absl::Span<const absl::string_view> FutureCommands();

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_FLAGS_H_
