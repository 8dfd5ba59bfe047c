// The table of every flag and every command: what --help shows, what a --config file may hold, and
// how a value gets into the Config.
#ifndef TIDEPOOL_SERVICE_CLI_FLAGS_H_
#define TIDEPOOL_SERVICE_CLI_FLAGS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "service/cli/config.h"

namespace tidepool::service {

// Bit i is the command of that number.
using CommandSet = uint32_t;
constexpr CommandSet Bit(Command command) { return CommandSet{1} << static_cast<int>(command); }

struct CommandSpec {
  Command command;
  absl::string_view name;
  absl::string_view summary;  // one line
  absl::string_view details;  // what --help says below the summary
  absl::string_view example;
  // Flags whose values may also stand alone, in this order.
  absl::Span<const absl::string_view> positionals = {};
};

enum class FlagKind : uint8_t {
  kSwitch,   // no value, or true or false
  kValue,    // once
  kRepeats,  // any number of times
};

struct FlagSpec {
  absl::string_view name;
  char letter;  // 0: the flag has no short form
  absl::string_view group;
  absl::string_view metavar;
  absl::string_view fallback;  // the default, for people; empty: none worth naming
  absl::string_view help;
  CommandSet commands;
  FlagKind kind;
  absl::Status (*apply)(absl::string_view value, Config* config);

  bool IsOf(Command c) const { return (commands & Bit(c)) != 0; }
};

absl::Span<const CommandSpec> Commands();
const CommandSpec& SpecOf(Command command);

// In the order in which --help shows them, groups together.
absl::Span<const FlagSpec> Flags();

// Flags and commands whose names are fixed and that this version does not serve.
absl::Span<const absl::string_view> FutureFlags();
absl::Span<const absl::string_view> FutureCommands();

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_FLAGS_H_
