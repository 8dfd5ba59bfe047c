// libFuzzer target: any lines as a command line, and any text as its --config file. Each line
// before the line "---" is an argument. The lines after "---" are the file.
//
//   CC=clang bazel run --config=fuzz //tests/fuzz:config_fuzz -- -max_total_time=60
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "service/cli/config.h"
#include "tests/fuzz/fuzz_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  constexpr absl::string_view kSeparator = "\n---\n";
  const size_t cut = std::min(input.find(kSeparator), input.size());
  std::vector<std::string> arguments;
  for (const absl::string_view line : absl::StrSplit(input.substr(0, cut), '\n')) {
    // A process's arguments contain no NUL byte. A path could name a file that never ends.
    if (absl::StrContains(line, '\0') || absl::StrContains(line, "/")) continue;
    arguments.emplace_back(line);
  }
  const absl::string_view file =
      cut == input.size() ? absl::string_view() : input.substr(cut + kSeparator.size());
  const tidepool::fuzz::FuzzFile toml(file.data(), file.size());
  if (cut != input.size()) arguments.push_back(absl::StrCat("--config=", toml.path()));
  const auto parsed = tidepool::service::ParseConfig(arguments, {.home = "/home/x"});
  if (!parsed.ok()) {
    CHECK(!parsed.status().message().empty());
    CHECK(!absl::StrContains(parsed.status().message(), "\n"));
  }
  return 0;
}
