#include "service/cli/help.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "service/cli/flags.h"

namespace tidepool::service {
namespace {

constexpr size_t kHelpColumn = 30;
constexpr size_t kWidth = 100;

// Appends `text` in lines of at most kWidth. All lines except the first are indented to
// kHelpColumn.
void AppendWrapped(absl::string_view text, std::string* out) {
  size_t column = kHelpColumn;
  bool first = true;
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    if (!first && column + 1 + word.size() > kWidth) {
      absl::StrAppend(out, "\n", std::string(kHelpColumn, ' '));
      column = kHelpColumn;
    } else if (!first) {
      out->push_back(' ');
      ++column;
    }
    absl::StrAppend(out, word);
    column += word.size();
    first = false;
  }
  out->push_back('\n');
}

std::string FlagLine(const FlagSpec& flag) {
  std::string line = flag.letter == 0 ? "      --" : absl::StrFormat("  -%c, --", flag.letter);
  absl::StrAppend(&line, flag.name);
  if (!flag.metavar.empty()) absl::StrAppend(&line, " ", flag.metavar);
  if (line.size() + 2 > kHelpColumn) {
    absl::StrAppend(&line, "\n", std::string(kHelpColumn, ' '));
  } else {
    line.resize(kHelpColumn, ' ');
  }
  std::string text(flag.help);
  if (!flag.fallback.empty()) absl::StrAppend(&text, " (default: ", flag.fallback, ")");
  AppendWrapped(text, &line);
  return line;
}

}  // namespace

std::string GeneralHelp() {
  std::string text =
      "Serves large language models over gRPC.\n\nUsage: tidepool COMMAND [FLAGS]\n\nCommands:\n";
  for (const CommandSpec& spec : Commands()) {
    absl::StrAppendFormat(&text, "  %-12s%s\n", spec.name, spec.summary);
  }
  absl::StrAppend(
      &text,
      "\nStart with:\n"
      "  tidepool serve --model model.gguf\n"
      "  tidepool chat --server 127.0.0.1:50051\n"
      "\n`tidepool COMMAND --help` lists the flags of a command. `tidepool --version` prints the "
      "version.\n"
      "A file can also set flags: use --config FILE.toml. The keys are the names of the flags.\n"
      "Exit codes: 0 success; 1 failure; 2 the command line or an input file is wrong.\n");
  return text;
}

std::string CommandHelp(Command command) {
  const CommandSpec& spec = SpecOf(command);
  std::string text = absl::StrCat("tidepool ", spec.name, ": ", spec.summary, ".\n");
  if (!spec.details.empty()) absl::StrAppend(&text, spec.details, "\n");
  absl::StrAppend(&text, "\nExample:\n  ", spec.example, "\n");
  absl::string_view group;
  for (const FlagSpec& flag : Flags()) {
    if (!flag.IsOf(command)) continue;
    if (flag.group != group) absl::StrAppend(&text, "\n", flag.group, ":\n");
    group = flag.group;
    absl::StrAppend(&text, FlagLine(flag));
  }
  absl::StrAppend(
      &text, "\nExit codes: 0 success; 1 failure; 2 the command line or an input file is wrong.\n");
  return text;
}

}  // namespace tidepool::service
