// Console: where a command writes. Results go to stdout; progress, notes and errors to stderr.
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

// One line; bytes that are not UTF-8 become U+FFFD, and characters that act on a terminal (C1
// controls, DEL, line separators, marks of direction) are escaped, which means the same in JSON.
std::string ToLine(const Json& json);

// `text` without what acts on a terminal, since a file or a peer may have written it: ASCII's
// control characters become blanks, the others escapes as in JSON, bytes that are not UTF-8 U+FFFD.
std::string OneLine(absl::string_view text);

// A value as text for a terminal: OneLine of a string, ToLine of anything else.
std::string Shown(const Json& json);

// Thread-compatible.
class Console {
 public:
  // Writes to these file descriptors, which it does not own.
  Console(int out, int err) : out_(out), err_(err) {}

  // Of a server, which waits neither for a reader of stdout nor for one of stderr: from now on Note
  // hands its text to the result, where a log can write, too, and Print waits 2 s at most.
  // The result lives as long as the console.
  LineWriter* NeverWait(LineWriter::Options options);

  // To stdout, at once. A reader that has gone away (a closed pipe) or a full disk is remembered.
  void Print(absl::string_view text);
  void PrintJson(const Json& json) { Print(ToLine(json) + "\n"); }
  // What a command found out, to stdout: as JSON, or as `text` puts it. The result is out_status().
  absl::Status PrintResult(OutputFormat format, const Json& json,
                           absl::FunctionRef<std::string(const Json&)> text);
  // Of a server with a log: from now on NoteLine's texts go there; LogSink(): to stderr again.
  void LinesTo(LogSink log) { log_ = std::move(log); }
  // What a person should know, one line without its end: to the log at this level, or as
  // "tidepool: LINE" to stderr.
  void NoteLine(absl::string_view line, LogLevel level = LogLevel::kWarn);
  // To stderr.
  void Note(absl::string_view text);

  // UNAVAILABLE once stdout could not be written.
  const absl::Status& out_status() const { return out_status_; }

  bool out_is_terminal() const;
  bool err_is_terminal() const;

 private:
  int out_;
  int err_;
  absl::Status out_status_;
  LogSink log_;                             // null: none
  std::unique_ptr<LineWriter> out_writer_;  // null: writes are waited for
  std::unique_ptr<LineWriter> err_writer_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CONSOLE_H_
