#include "service/cli/console.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernels/base/utf8.h"

namespace tidepool::service {
namespace {

constexpr absl::Duration kPrintWait = absl::Seconds(2);

bool WriteAll(int fd, absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      // The write failed because another process that shares the file has made it non-blocking. So
      // wait until the file can be written.
      pollfd file = {fd, POLLOUT, 0};
      poll(&file, 1, -1);
      continue;
    }
    if (written <= 0) return false;
    text.remove_prefix(written);
  }
  return true;
}

// Returns true for non-ASCII characters that change how a terminal displays text.
bool ActsOnTerminals(char32_t c) {
  return (c >= 0x7F && c <= 0x9F)          // DEL, C1 controls
         || c == 0x61C                     // Arabic letter mark
         || c == 0x200E || c == 0x200F     // left-to-right and right-to-left marks
         || (c >= 0x2028 && c <= 0x202E)   // separators, embeddings, overrides
         || (c >= 0x2066 && c <= 0x2069);  // isolates
}

// Escapes the characters of ActsOnTerminals.
std::string Escaped(absl::string_view text) {
  std::string line;
  line.reserve(text.size());
  while (!text.empty()) {
    const base::Utf8Char next = base::NextUtf8Char(text);
    if (next.kind != base::Utf8Char::Kind::kWhole) {
      absl::StrAppend(&line, base::kReplacementCharacter);
    } else if (ActsOnTerminals(next.code_point)) {
      absl::StrAppendFormat(&line, "\\u%04x", static_cast<uint32_t>(next.code_point));
    } else {
      absl::StrAppend(&line, text.substr(0, next.size));
    }
    text.remove_prefix(next.size);
  }
  return line;
}

}  // namespace

std::string ToLine(const Json& json) {
  std::string line =
      json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
  const bool plain =
      std::all_of(line.begin(), line.end(), [](unsigned char c) { return c < 0x7F; });
  return plain ? line : Escaped(line);
}

std::string OneLine(absl::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return absl::ascii_iscntrl(c); }, ' ');
  return Escaped(line);
}

std::string Shown(const Json& json) {
  return json.is_string() ? OneLine(json.get<std::string>()) : ToLine(json);
}

LineWriter* Console::NeverWait(LineWriter::Options options) {
  err_writer_ = std::make_unique<LineWriter>(err_, std::move(options));
  // The destructor need not wait for queued text, because Print has flushed it.
  out_writer_ = std::make_unique<LineWriter>(
      out_, LineWriter::Options{.flush_timeout = absl::ZeroDuration()});
  return err_writer_.get();
}

void Console::Print(absl::string_view text) {
  if (!out_status_.ok()) return;
  int error = 0;
  if (out_writer_ == nullptr) {
    if (!WriteAll(out_, text)) error = errno;
  } else {
    out_writer_->Write(std::string(text));
    if (!out_writer_->Flush(kPrintWait)) {
      return NoteLine("nobody reads stdout: it is a full pipe or a stopped terminal");
    }
    error = out_writer_->last_error();
  }
  if (error == 0) return;
  out_status_ = absl::UnavailableError(absl::StrCat("cannot write to stdout: ", strerror(error)));
}

absl::Status Console::PrintResult(OutputFormat format, const Json& json,
                                  absl::FunctionRef<std::string(const Json&)> text) {
  Print(format == OutputFormat::kJson ? ToLine(json) + "\n" : text(json));
  return out_status_;
}

void Console::NoteLine(absl::string_view line, LogLevel level) {
  if (log_) return log_(level, line);
  Note(absl::StrCat("tidepool: ", OneLine(line), "\n"));
}

// If stderr is closed, there is no way to report this.
void Console::Note(absl::string_view text) {
  if (err_writer_ != nullptr) return err_writer_->Write(std::string(text));
  (void)WriteAll(err_, text);
}

bool Console::out_is_terminal() const { return isatty(out_) == 1; }
bool Console::err_is_terminal() const { return isatty(err_) == 1; }

}  // namespace tidepool::service
