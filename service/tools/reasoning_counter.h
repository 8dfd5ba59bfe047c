// ReasoningCounter: counts the tokens of a response that are reasoning.
#ifndef TIDEPOOL_SERVICE_TOOLS_REASONING_COUNTER_H_
#define TIDEPOOL_SERVICE_TOOLS_REASONING_COUNTER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "service/tools/response_parser.h"

namespace tidepool::service {

// Thread-compatible. The count depends only on the tokens, so it is the same if another worker
// continues the response.
class ReasoningCounter {
 public:
  explicit ReasoningCounter(const ResponseFormat& format) : parser_(format) {}

  // Adds the next token. `text` is its text as ResponseParser reads it. Tokens without a text are
  // not counted.
  void Add(absl::string_view text);
  // Number of tokens with at least one byte between the markers of reasoning. If the reasoning has
  // no end yet, the beginning of its end marker is counted too.
  int64_t tokens() const { return closed_ + static_cast<int64_t>(open_.size()); }

 private:
  ResponseParser parser_;
  int64_t bytes_ = 0;          // bytes of all tokens
  int64_t closed_ = 0;         // number of tokens of finished reasoning
  std::vector<int64_t> open_;  // positions of the tokens of unfinished reasoning
};

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_REASONING_COUNTER_H_
