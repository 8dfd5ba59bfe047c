#include "service/cli/command_line.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "service/base/units.h"

namespace tidepool::service {
namespace {

const FlagSpec* FindLetter(Command command, char letter) {
  for (const FlagSpec& flag : Flags()) {
    if (flag.IsOf(command) && flag.letter != 0 && flag.letter == letter) return &flag;
  }
  return nullptr;
}

class Splitter {
 public:
  Splitter(Command command, absl::Span<const std::string> args) : command_(command), args_(args) {}

  absl::StatusOr<FlagValues> Split() {
    std::vector<std::string> words;
    while (next_ < args_.size()) {
      const std::string& argument = args_[next_++];
      if (argument == "--") {
        words.insert(words.end(), args_.begin() + next_, args_.end());
        break;
      }
      if (argument.size() > 1 && argument[0] == '-') {
        RETURN_IF_ERROR(TakeFlag(argument));
      } else {
        words.push_back(argument);
      }
    }
    for (const std::string& word : words) TakeWord(word);
    for (const auto& [name, values] : values_) {
      if (values.size() > 1 && FindFlag(command_, name)->kind == FlagKind::kValue) {
        return absl::InvalidArgumentError(
            absl::StrCat("--", name, " is given ", values.size(), " times; give it once"));
      }
    }
    if (!stray_.ok() && values_.count("help") == 0) return stray_;
    return std::move(values_);
  }

 private:
  // Parses "--name", "--name=VALUE", "-n" or "-nVALUE", and takes the next argument if it is the
  // value.
  absl::Status TakeFlag(absl::string_view argument) {
    const bool is_long = absl::StartsWith(argument, "--");
    const absl::string_view prefix = is_long ? "--" : "-";
    const absl::string_view name =
        argument.substr(prefix.size(), argument.find('=') - prefix.size());
    const size_t end = is_long ? prefix.size() + name.size() : 2;
    const bool has_value = end < argument.size();
    const FlagSpec* flag = is_long ? FindFlag(command_, name) : FindLetter(command_, argument[1]);
    const bool is_switch = flag != nullptr && flag->kind == FlagKind::kSwitch;
    if (flag == nullptr || (is_switch && has_value && !is_long)) {
      stray_.Update(UnknownFlag(command_, name, prefix));
      return absl::OkStatus();
    }
    std::string value = "true";
    if (has_value) {
      value = std::string(argument.substr(is_long ? end + 1 : end));
    } else if (!is_switch) {
      if (next_ == args_.size()) {
        return absl::InvalidArgumentError(absl::StrCat("--", flag->name, " needs a value, as in --",
                                                       flag->name, " ", flag->metavar));
      }
      value = args_[next_++];
    }
    values_[std::string(flag->name)].push_back(std::move(value));
    return absl::OkStatus();
  }

  // Assigns the word to the next positional flag that has no value yet.
  void TakeWord(const std::string& word) {
    for (const absl::string_view name : SpecOf(command_).positionals) {
      if (values_.count(std::string(name)) > 0) continue;
      values_[std::string(name)] = {word};
      return;
    }
    stray_.Update(absl::InvalidArgumentError(
        absl::StrCat("unexpected argument \"", ShownName(word),
                     "\": a value follows its flag, as in --model FILE")));
  }

  const Command command_;
  const absl::Span<const std::string> args_;
  size_t next_ = 0;
  FlagValues values_;
  absl::Status stray_;  // the first argument that the command does not accept
};

}  // namespace

const FlagSpec* FindFlag(Command command, absl::string_view name) {
  for (const FlagSpec& flag : Flags()) {
    if (flag.IsOf(command) && flag.name == name) return &flag;
  }
  return nullptr;
}

absl::Status UnknownFlag(Command command, absl::string_view name, absl::string_view prefix) {
  const absl::Span<const absl::string_view> future = FutureFlags();
  if (std::find(future.begin(), future.end(), name) != future.end()) {
    return absl::UnimplementedError(absl::StrCat(prefix, name, " is not available yet"));
  }
  std::vector<std::string> candidates;
  bool elsewhere = false;
  for (const FlagSpec& flag : Flags()) {
    if (flag.IsOf(command)) candidates.emplace_back(flag.name);
    elsewhere = elsewhere || flag.name == name;
  }
  if (elsewhere) {
    return absl::InvalidArgumentError(
        absl::StrCat(prefix, name, " is not a flag of tidepool ", SpecOf(command).name));
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown ", prefix.empty() ? "key " : "flag ",
                                                 prefix, ShownName(name),
                                                 NearestNameHint(name, candidates, prefix)));
}

absl::StatusOr<FlagValues> ReadCommandLine(Command command, absl::Span<const std::string> args) {
  return Splitter(command, args).Split();
}

}  // namespace tidepool::service
