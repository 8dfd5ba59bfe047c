// TraceParser: parses the lines of a trace.
#ifndef TIDEPOOL_MOE_TRACE_TRACE_PARSER_H_
#define TIDEPOOL_MOE_TRACE_TRACE_PARSER_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "moe/trace/trace.h"
#include "nlohmann/json.hpp"

namespace tidepool::moe {

// Thread-compatible. The text can be passed in pieces of any size.
class TraceParser {
 public:
  explicit TraceParser(std::string name) : name_(std::move(name)) {}

  absl::Status Add(absl::string_view text);
  // Must be called after the last piece. The parser must not be used afterwards.
  absl::StatusOr<Trace> Finish();

 private:
  absl::Status ParseLine(absl::string_view line);
  absl::Status ParseHeader(const nlohmann::json& line);
  absl::Status ParseEntry(const nlohmann::json& line);
  absl::Status ParseIds(const nlohmann::json& line, TraceEntry* entry);
  absl::Status ParseWeights(const nlohmann::json& line, TraceEntry* entry);
  absl::Status ParsePhases(const nlohmann::json& line, TraceEntry* entry);
  absl::Status ParseRequests(const nlohmann::json& line, TraceEntry* entry);
  absl::Status Wrong(absl::string_view what) const;

  const std::string name_;
  Trace trace_;
  std::string rest_;  // the beginning of a line whose rest was not added yet
  int64_t line_ = 0;  // number of the current line
  int64_t ids_ = 0;   // number of ids in trace_ so far
  std::unordered_map<std::string, int64_t> requests_;
  std::vector<int64_t> seen_;  // [experts]: the last token that used the expert
  int64_t token_ = 0;          // number of the current token in the file
};

}  // namespace tidepool::moe

#endif  // TIDEPOOL_MOE_TRACE_TRACE_PARSER_H_
