#include "service/cli/console.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace tidepool::service {
namespace {

bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(written);
  }
  return true;
}

}  // namespace

std::string ToLine(const Json& json) {
  return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string OneLine(absl::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
  return line;
}

void Console::Print(absl::string_view text) {
  if (!out_status_.ok() || WriteAll(out_, text)) return;
  out_status_ =
      absl::UnavailableError(absl::StrCat("cannot write to stdout: ", std::strerror(errno)));
}

absl::Status Console::PrintResult(OutputFormat format, const Json& json,
                                  absl::FunctionRef<std::string(const Json&)> text) {
  Print(format == OutputFormat::kJson ? ToLine(json) + "\n" : text(json));
  return out_status_;
}

// Nobody can be told that stderr is gone.
void Console::Note(absl::string_view text) { (void)WriteAll(err_, text); }

bool Console::out_is_terminal() const { return isatty(out_) == 1; }
bool Console::err_is_terminal() const { return isatty(err_) == 1; }

}  // namespace tidepool::service
