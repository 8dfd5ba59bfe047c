// Compares text that is still growing with markers.
#ifndef TIDEPOOL_SERVICE_TOOLS_TEXT_MATCH_H_
#define TIDEPOOL_SERVICE_TOOLS_TEXT_MATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace tidepool::service {

enum class Match : uint8_t {
  kNo,
  kPartial,  // the text ends before the result is certain
  kYes,
};

struct Matched {
  Match match = Match::kNo;
  size_t length = 0;  // length of the matched text; for kYes
};

// Returns whether `text` begins with `pattern`. White space in the pattern matches any white space,
// or none.
Matched MatchText(absl::string_view text, absl::string_view pattern);

// Returns the result for the first pattern that matches. If none does, and at least one may match
// later, returns kPartial.
Matched MatchAny(absl::string_view text, absl::Span<const absl::string_view> patterns);

// Maximum number of white-space bytes between two markers. It limits the text that is held back and
// read again.
inline constexpr size_t kMaxSpace = 256;

// Returns the position of the first byte at or after `from` that is not white space, but at most
// from + kMaxSpace.
size_t SkipSpace(absl::string_view text, size_t from = 0);

// Returns the length of the longest suffix of `text` that is a proper prefix of `word`.
size_t BeginsAtEnd(absl::string_view text, absl::string_view word);

// Returns the JSON value at the beginning of `text`. White space before it is not allowed. A number
// or a word is complete when another byte follows. Not all errors in the value are found.
Matched MatchJsonValue(absl::string_view text);

}  // namespace tidepool::service

#endif  // TIDEPOOL_SERVICE_TOOLS_TEXT_MATCH_H_
