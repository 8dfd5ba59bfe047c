// Console: where a command writes. Results go to stdout; progress, notes and errors to stderr.
#ifndef TIDEPOOL_SERVICE_CLI_CONSOLE_H_
#define TIDEPOOL_SERVICE_CLI_CONSOLE_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"
#include "service/config.h"

namespace tidepool::service {

using Json = nlohmann::ordered_json;

// One line; bytes that are not UTF-8 become U+FFFD.
std::string ToLine(const Json& json);

// `text` without control characters, which become blanks: what a file or a peer wrote must not
// command a terminal.
std::string OneLine(absl::string_view text);

// Thread-compatible.
class Console {
 public:
  // Writes to these file descriptors, which it does not own.
  Console(int out, int err) : out_(out), err_(err) {}

  // To stdout, at once. A reader that has gone away (a closed pipe) or a full disk is remembered.
  void Print(absl::string_view text);
  void PrintJson(const Json& json) { Print(ToLine(json) + "\n"); }
  // What a command found out, to stdout: as JSON, or as `text` puts it. The result is out_status().
  absl::Status PrintResult(OutputFormat format, const Json& json,
                           absl::FunctionRef<std::string(const Json&)> text);
  // To stderr, at once.
  void Note(absl::string_view text);

  // UNAVAILABLE once stdout could not be written.
  const absl::Status& out_status() const { return out_status_; }

  bool out_is_terminal() const;
  bool err_is_terminal() const;

 private:
  int out_;
  int err_;
  absl::Status out_status_;
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_CLI_CONSOLE_H_
