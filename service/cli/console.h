// Console: the output of a command. Results go to stdout. Progress, notes and errors go to stderr.
#ifndef TIDEPOOL_SERVICE_CLI_CONSOLE_H_
#define TIDEPOOL_SERVICE_CLI_CONSOLE_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "service/base/log_level.h"
#include "service/cli/config.h"
#include "service/cli/line_writer.h"

namespace tidepool::service {

using Json = nlohmann::ordered_json;

// Formats JSON on one line. Replaces invalid UTF-8 by U+FFFD, and escapes characters that change a
// terminal's display (C1 controls, DEL, line separators, direction marks) without changing the JSON
// value.
std::string ToLine(const Json& json);

// Makes `text` safe to print, since a file or a peer may have written it. ASCII control characters
// become blanks, other control characters become JSON escapes, and invalid UTF-8 becomes U+FFFD.
std::string OneLine(absl::string_view text);

// Formats a value for a terminal: OneLine for a string, ToLine for anything else.
std::string Shown(const Json& json);

// Thread-compatible.
class Console {
 public:
  // Writes to these file descriptors, which it does not own.
  Console(int out, int err) : out_(out), err_(err) {}

  // For servers, whose output must not block. After this call, Note passes its text to the returned
  // writer, which a log may share, and Print blocks at most 2 s. The writer lives as long as the
  // console.
  LineWriter* NeverWait(LineWriter::Options options);

  // Writes to stdout and flushes. Errors, such as a closed pipe or a full disk, are kept in
  // out_status().
  void Print(absl::string_view text);
  void PrintJson(const Json& json) { Print(ToLine(json) + "\n"); }
  // Prints a command's result to stdout, as JSON or as `text`. Returns out_status().
  absl::Status PrintResult(OutputFormat format, const Json& json,
                           absl::FunctionRef<std::string(const Json&)> text);
  // For a server with a log: NoteLine passes its lines to `log` from now on. An empty LogSink()
  // restores stderr.
  void LinesTo(LogSink log) { log_ = std::move(log); }
  // Prints a one-line note. `line` has no newline. If there is a log, the note goes to it at
  // `level`. Otherwise, "tidepool: LINE" goes to stderr.
  void NoteLine(absl::string_view line, LogLevel level = LogLevel::kWarn);
  // Writes to stderr.
  void Note(absl::string_view text);

  // UNAVAILABLE after a write to stdout has failed.
  const absl::Status& out_status() const { return out_status_; }

  bool out_is_terminal() const;
  bool err_is_terminal() const;

 private:
  int out_;
  int err_;
  absl::Status out_status_;
  LogSink log_;                             // null: none
  std::unique_ptr<LineWriter> out_writer_;  // null: writes block
  std::unique_ptr<LineWriter> err_writer_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CONSOLE_H_
